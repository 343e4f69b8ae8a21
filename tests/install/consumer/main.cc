// A user's program: counts the records of a file with only the reader, then feeds them to two replicas.
#include <feedline/feeder.h>
#include <feedline/records.h>

#include <cstdio>
#include <exception>
#include <string>

int main(int, char** argv) try {
  const std::string file = argv[1];

  unsigned long long read = 0;
  feedline::RecordReader reader(file);
  for (feedline::Record record; reader.next(record) == feedline::ReadResult::record;) read++;

  const auto pipeline = feedline::parse_pipeline("source { files: '" + file +
                                                 "' }"
                                                 "feature { name: 'label' dtype: INT64 }"
                                                 "batch { global_batch_size: 64 last_batch_policy: PARTIAL }");
  feedline::Feeder feeder(pipeline, {.devices = {feedline::host(0), feedline::host(1)}});
  long long fed = 0;
  for (bool more = true; more;)
    for (int replica = 0; replica < feeder.replicas(); replica++)
      if (auto batch = feeder.next(replica))
        fed += batch.valid_count();
      else
        more = false;

  std::printf("read %llu, fed %lld\n", read, fed);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
