// What a pass over the chosen samples adds to an epoch's audit (base/audit.h): what the delivered sums are held
// against.
#pragma once

#include "flowgraph/data/data_set.h"

namespace feedline::flow {

/// Sets DataFile::pass_audit of every file, or DataSet::no_pass_audit where that cannot be told.
///
/// The indexes have a sum for each 64 strides of a file. Of a range or shard, the records between its ends and the next
/// such border are read: 2 MiB of a source at the default stride. A record that is a frame of several windows counts as
/// often as it is delivered. Away from the ends of files, and from changes of the key, that is one number for all
/// records if `shift` divides `size` and has no divisor in common with `stride`; the records near these ends are read,
/// if they are few enough. Throws Error io_error.
void sum_passes(const PipelineSpec& spec, DataSet& data);

}  // namespace feedline::flow
