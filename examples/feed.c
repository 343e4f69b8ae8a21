/* Feeds two epochs of a pipeline from C, and prints the tensors of each batch.

     feed_c examples/digits.textproto */
#include <feedline/feedline.h>
#include <stdio.h>
#include <stdlib.h>

static void fail(void) {
  const feedline_error* error = feedline_last_error();
  fprintf(stderr, "%s\n", error->text);
  exit(1);
}

static void print_tensor(const feedline_batch* batch, const char* name) {
  DLManagedTensorVersioned* tensor = NULL;
  if (feedline_batch_tensor(batch, name, &tensor) != FEEDLINE_OK) fail();
  printf("  %s: %d bits [", name, tensor->dl_tensor.dtype.bits);
  for (int32_t axis = 0; axis < tensor->dl_tensor.ndim; axis++)
    printf("%s%lld", axis ? ", " : "", (long long)tensor->dl_tensor.shape[axis]);
  printf("]\n");
  tensor->deleter(tensor); /* a trainer keeps it until it needs the memory no more */
}

int main(int argc, char** argv) {
  feedline_pipeline* pipeline = NULL;
  feedline_feeder* feeder = NULL;
  feedline_options options = {sizeof options, "host", 0, 1, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL};
  char* state = NULL;
  long long rows = 0;
  if (argc != 2) {
    fprintf(stderr, "usage: %s PIPELINE\n", argv[0]);
    return 2;
  }
  if (feedline_pipeline_load(argv[1], &pipeline) != FEEDLINE_OK) fail();
  if (feedline_feeder_new(pipeline, &options, &feeder) != FEEDLINE_OK) fail();
  for (int epoch = 0; epoch < 2; epoch++) {
    feedline_batch* batch = NULL;
    feedline_status status = FEEDLINE_OK;
    while ((status = feedline_feeder_next(feeder, 0, -1, &batch)) == FEEDLINE_OK) {
      feedline_batch_info info = {sizeof info, 0, 0, 0, 0, 0};
      if (feedline_batch_get_info(batch, &info) != FEEDLINE_OK) fail();
      rows += info.valid_count;
      if (epoch == 0 && info.step == 0) {
        printf("the first of %lld batches:\n", (long long)feedline_feeder_steps_per_epoch(feeder));
        for (size_t i = 0; i < info.tensors; i++) print_tensor(batch, feedline_batch_tensor_name(batch, i));
      }
      feedline_batch_free(batch);
    }
    if (status != FEEDLINE_END_OF_EPOCH) fail();
  }
  if (feedline_feeder_get_state(feeder, -1, &state) != FEEDLINE_OK) fail();
  printf("%lld rows in two epochs; the state is %s\n", rows, state);
  feedline_text_free(state);
  feedline_feeder_free(feeder);
  feedline_pipeline_free(pipeline);
  return 0;
}
