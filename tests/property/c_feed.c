/* Feeds some steps of a pipeline by the C interface, and writes all tensors to standard output: for each a line of its
   code, bits, axes and name, then its bytes. A line "end STATUS" comes last.

     c_feed PIPELINE STEPS */
#include <feedline/feedline.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void write_tensor(const char* name, const DLTensor* tensor) {
  size_t bytes = (size_t)tensor->dtype.bits / 8;
  printf("%d %d", tensor->dtype.code, tensor->dtype.bits);
  for (int32_t axis = 0; axis < tensor->ndim; axis++) {
    printf(" %" PRId64, tensor->shape[axis]);
    bytes *= (size_t)tensor->shape[axis];
  }
  printf(" %s\n", name);
  if (bytes > 0) fwrite((const char*)tensor->data + tensor->byte_offset, 1, bytes, stdout);
}

int main(int argc, char** argv) {
  feedline_pipeline* pipeline = NULL;
  feedline_feeder* feeder = NULL;
  feedline_status status = FEEDLINE_OK;
  if (argc != 3) return 2;
  status = feedline_pipeline_load(argv[1], &pipeline);
  if (status == FEEDLINE_OK) status = feedline_feeder_new(pipeline, NULL, &feeder);
  for (long left = atol(argv[2]); status == FEEDLINE_OK && left > 0; left--) {
    feedline_batch* batch = NULL;
    feedline_batch_info info = {sizeof info, 0, 0, 0, 0, 0};
    status = feedline_feeder_next(feeder, 0, -1, &batch);
    if (status != FEEDLINE_OK) break;
    status = feedline_batch_get_info(batch, &info);
    for (size_t i = 0; status == FEEDLINE_OK && i < info.tensors; i++) {
      const char* const name = feedline_batch_tensor_name(batch, i);
      DLManagedTensorVersioned* tensor = NULL;
      status = feedline_batch_tensor(batch, name, &tensor);
      if (status != FEEDLINE_OK) break;
      write_tensor(name, &tensor->dl_tensor);
      tensor->deleter(tensor);
    }
    feedline_batch_free(batch);
  }
  if (status != FEEDLINE_OK && status != FEEDLINE_END_OF_EPOCH) fprintf(stderr, "%s\n", feedline_last_error()->text);
  printf("end %d\n", (int)status);
  feedline_feeder_free(feeder);
  feedline_pipeline_free(pipeline);
  return 0;
}
