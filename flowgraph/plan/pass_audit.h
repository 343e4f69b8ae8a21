// Computes what one pass over the chosen samples adds to an epoch's audit, a sum of hashes of records (base/audit.h).
// The sum over the delivered samples is compared with it.
#pragma once

#include "flowgraph/data/data_set.h"

namespace feedline::flow {

/// Sets DataFile::pass_audit of every file. If that cannot be computed, sets DataSet::no_pass_audit to the reason.
/// Throws Error io_error if a file cannot be read.
///
/// The index of a file has a sum for each group of 64 strides (io/index/index.h). A range or a shard may begin or end
/// inside a group. The records between that place and the group's border are then read: at most 2 MiB of a source at
/// the default stride.
///
/// A record that is a frame of several windows counts as often as it is delivered. If `shift` divides `size` and has no
/// divisor in common with `stride`, all records away from the ends of files and from changes of the key are in equally
/// many windows. The records near these ends and changes are read, if they are few enough.
void sum_passes(const PipelineSpec& spec, DataSet& data);

}  // namespace feedline::flow
