/* feedline for C, and for whatever calls C: a feeder's batches as DLPack tensors.

     feedline_pipeline* pipeline = NULL;
     feedline_feeder* feeder = NULL;
     if (feedline_pipeline_load("chess.textproto", &pipeline) != FEEDLINE_OK) fail(feedline_last_error());
     if (feedline_feeder_new(pipeline, NULL, &feeder) != FEEDLINE_OK) fail(feedline_last_error());
     for (feedline_batch* batch = NULL; feedline_feeder_next(feeder, 0, -1, &batch) == FEEDLINE_OK;) {
       DLManagedTensorVersioned* board = NULL;
       if (feedline_batch_tensor(batch, "board", &board) != FEEDLINE_OK) fail(feedline_last_error());
       train(&board->dl_tensor);
       board->deleter(board);
       feedline_batch_free(batch);
     }

   These functions do what the methods of feedline/feeder.h and feedline/pipeline.h do; those headers say more about
   threads, streams, epochs and states. examples/feed.c is a whole program.

   * Pointers may not be NULL where nothing else is said; functions say so with the category "bad_pipeline". Those that
     return no status then return 0, -1 for numbers of steps and samples, or "".
   * A function that can fail returns a feedline_status. Its results are set if it returns FEEDLINE_OK, and unchanged
     otherwise. feedline_last_error() then describes the failure of this thread's last call.
   * What a function named _new, _load, _parse, _with or _next gives out belongs to the caller, who frees it with the
     function named _free of its type. NULL may be freed. A `const char*` belongs to the object that was asked, unless
     the function says otherwise.
   * Texts are UTF-8 and end with a 0 byte.
   * A struct begins with its size. Set it to sizeof(the struct), so that a library that knows a longer struct reads and
     writes no more than the caller has; members that are 0 have their defaults. A size that is less than that of
     version 0.1.0 is refused.

   C11 and C++. Functions and members may be added in later versions, and keep their meaning. */
#ifndef FEEDLINE_FEEDLINE_H_
#define FEEDLINE_FEEDLINE_H_

#include <stddef.h>
#include <stdint.h>

#include "feedline/dlpack.h"

#ifndef FEEDLINE_C_API
#define FEEDLINE_C_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  FEEDLINE_OK = 0,
  FEEDLINE_END_OF_EPOCH = 1, /* feedline_feeder_next(): the epoch has ended; the next call begins the next one */
  FEEDLINE_NOT_READY = 2,    /* feedline_feeder_next(): no batch came within timeout_ms */
  FEEDLINE_FAILED = 3
} feedline_status;

/* The last failure on this thread. It is valid until the thread's next call that fails. */
typedef struct {
  const char* text;     /* one line with the place, for people */
  const char* category; /* for programs: "bad_data_crc", "bad_pipeline", ... (docs/errors.md) */
  const char* message;  /* the line without the place */
  const char* file;     /* "" where it does not apply */
  int64_t offset;       /* bytes from the start of the file, or -1 */
  int64_t record;       /* good records before the place, or -1 */
  const char* feature;  /* "" where it does not apply */
} feedline_error;
FEEDLINE_C_API const feedline_error* feedline_last_error(void);

/* The version of the library: "0.1.0". */
FEEDLINE_C_API const char* feedline_version(void);

/* Pipelines */

typedef struct feedline_pipeline feedline_pipeline;

/* Makes a pipeline from a text file. Relative file patterns are relative to the file's folder. */
FEEDLINE_C_API feedline_status feedline_pipeline_load(const char* file, feedline_pipeline** pipeline);
/* Makes a pipeline from text. Relative file patterns are relative to `folder`; "" is the working directory. Both are
   looked up now, so that the pipeline names the same files after the process has changed its working directory. */
FEEDLINE_C_API feedline_status feedline_pipeline_parse(const char* text, const char* folder,
                                                       feedline_pipeline** pipeline);
/* Makes a pipeline from this one, with the fields in `text` in place of its own (feedline/pipeline.h has the rules). */
FEEDLINE_C_API feedline_status feedline_pipeline_with(const feedline_pipeline* pipeline, const char* text,
                                                      feedline_pipeline** changed);
/* Makes a pipeline with one field changed: "batch.global_batch_size", "512". */
FEEDLINE_C_API feedline_status feedline_pipeline_with_field(const feedline_pipeline* pipeline, const char* path,
                                                            const char* value, feedline_pipeline** changed);
/* Returns the pipeline as text, which is valid until the pipeline is freed. */
FEEDLINE_C_API const char* feedline_pipeline_text(const feedline_pipeline* pipeline);
FEEDLINE_C_API void feedline_pipeline_free(feedline_pipeline* pipeline);

/* Feeders */

typedef struct feedline_feeder feedline_feeder;

typedef struct {
  size_t struct_size;
  const char* devices; /* "host", "host:4", "cuda", "cuda:0,2", "auto"; NULL: "host" */
  int32_t rank;        /* this rank's number, and the number of ranks that feed one training; 0 of 1 by default */
  int32_t world_size;
  int32_t threads;      /* 0: the CPUs that this process may use */
  uint64_t start_epoch; /* the epoch to begin with, at most 2^63 - 1 */
  const char* backend;  /* "uring" or "pread"; NULL: what the kernel allows */
  /* Called while the data is counted, from any thread, one call at a time. If it does not return 0, making the feeder
     fails with the category "stalled". */
  int32_t (*on_progress)(void* context, uint64_t done_bytes, uint64_t total_bytes);
  void* progress_context;
  /* An all-gather of bytes among the ranks, if they are to compare pipeline and data while they start. It is given
     this rank's bytes, calls take() for the bytes of every rank in their order, and returns 0; anything else fails the
     start. */
  int32_t (*exchange)(void* context, const void* mine, size_t size,
                      void (*take)(void* taker, const void* bytes, size_t size), void* taker);
  void* exchange_context;
  const char* monitor;       /* the address at which the feeder serves its page and metrics over HTTP, such as
                          "127.0.0.1:9400" (docs/monitor.md); NULL: it serves none */
  const char* monitor_token; /* the password of the monitor; NULL: none */
} feedline_options;

/* Validates the pipeline, counts and verifies the data, and starts reading. NULL for `options` is all defaults. */
FEEDLINE_C_API feedline_status feedline_feeder_new(const feedline_pipeline* pipeline, const feedline_options* options,
                                                   feedline_feeder** feeder);
/* Ends the feed. Batches that are still held stay valid. */
FEEDLINE_C_API void feedline_feeder_free(feedline_feeder* feeder);
/* Ends the feed and wakes every thread that waits in feedline_feeder_next(). May be called from any thread. */
FEEDLINE_C_API void feedline_feeder_stop(feedline_feeder* feeder);

typedef struct feedline_batch feedline_batch;

/* Gives out the replica's next batch. Waits for it at most `timeout_ms` milliseconds, or without end if that is
   negative. At the end of an epoch it returns FEEDLINE_END_OF_EPOCH once. */
FEEDLINE_C_API feedline_status feedline_feeder_next(feedline_feeder* feeder, int32_t replica, int64_t timeout_ms,
                                                    feedline_batch** batch);
/* Returns how many batches the replica's caller may still take without giving one back. If none is left,
   feedline_feeder_next() may fail with the category "stalled". */
FEEDLINE_C_API size_t feedline_feeder_spare_batches(const feedline_feeder* feeder, int32_t replica);

FEEDLINE_C_API int32_t feedline_feeder_replicas(const feedline_feeder* feeder);
/* Return the number of steps, and of good samples, in an epoch; -1 if the epoch has no end or is not counted yet. */
FEEDLINE_C_API int64_t feedline_feeder_steps_per_epoch(const feedline_feeder* feeder);
FEEDLINE_C_API int64_t feedline_feeder_samples_per_epoch(const feedline_feeder* feeder);

/* One output, as it is in every batch. */
typedef struct {
  size_t struct_size;
  const char* name;
  const char* kind; /* "dense": NAME [rows, shape...]; "padded": NAME [rows, longest, shape...]; "ragged", "nested" */
  DLDataType dtype; /* of the elements; of strings: uint8 */
  int32_t strings;  /* 1: its tensors are NAME.bytes and NAME.offsets (NAME.values is left out) */
  int32_t ndim;     /* the shape without the rows */
  const int64_t* shape; /* valid as long as the feeder */
} feedline_element;
FEEDLINE_C_API size_t feedline_feeder_element_count(const feedline_feeder* feeder);
FEEDLINE_C_API feedline_status feedline_feeder_element(const feedline_feeder* feeder, size_t number,
                                                       feedline_element* element);

/* Gives out the state, a text that the caller frees with feedline_text_free(). It is the state after the first `step`
   steps of the epoch that is fed, or, if `step` is negative, after the steps that all replicas have received. */
FEEDLINE_C_API feedline_status feedline_feeder_get_state(const feedline_feeder* feeder, int64_t step, char** text);
/* Continues where the state was taken. If `accept_changes` is 0, fails if data or pipeline have changed. */
FEEDLINE_C_API feedline_status feedline_feeder_set_state(feedline_feeder* feeder, const char* text,
                                                         int32_t accept_changes);
/* Moves the feeder to the beginning of an epoch. */
FEEDLINE_C_API feedline_status feedline_feeder_set_epoch(feedline_feeder* feeder, uint64_t epoch);
/* Gives out the report as JSON (docs/questions.md), which the caller frees with feedline_text_free(). */
FEEDLINE_C_API feedline_status feedline_feeder_report(const feedline_feeder* feeder, char** json);
FEEDLINE_C_API void feedline_text_free(char* text);
/* Returns the address of the monitor with the port that it listens at, such as "http://127.0.0.1:9400/", or "" if there
   is no monitor. The text is valid until the feeder is freed. */
FEEDLINE_C_API const char* feedline_feeder_monitor_address(const feedline_feeder* feeder);

/* Batches */

typedef struct {
  size_t struct_size;
  uint64_t epoch;
  uint64_t step;       /* of its epoch, from 0 */
  int64_t rows;        /* the length of the first axis of every dense tensor */
  int64_t valid_count; /* how many of them are samples; the others are filler, 0 in the tensor "@valid" */
  size_t tensors;      /* how many tensors the batch has */
} feedline_batch_info;
FEEDLINE_C_API feedline_status feedline_batch_get_info(const feedline_batch* batch, feedline_batch_info* info);
/* Returns the name of a tensor, or NULL if there are not so many. */
FEEDLINE_C_API const char* feedline_batch_tensor_name(const feedline_batch* batch, size_t number);
/* Gives out a tensor of the batch without copying it. Its memory stays valid until its deleter is called, also after
   the batch is freed. The flag DLPACK_FLAG_BITMASK_READ_ONLY is set if the tensor lies in the memory into which its
   file was read, which must not be written. On a GPU, call feedline_batch_ready_on() before a stream uses it. */
FEEDLINE_C_API feedline_status feedline_batch_tensor(const feedline_batch* batch, const char* name,
                                                     DLManagedTensorVersioned** tensor);
/* Makes a CUDA stream wait until the tensors are written; NULL makes the calling thread wait. The memory goes back to
   the feeder after the batch and its tensors are freed, when every stream that was given to this function has done the
   work that was queued on it before. */
FEEDLINE_C_API feedline_status feedline_batch_ready_on(const feedline_batch* batch, void* cuda_stream);
/* Makes a copy of the batch in memory of its own on the same device, to be kept for any time: the feeder's buffers are
   few (see feedline_feeder_spare_batches). Waits until the copy is done. */
FEEDLINE_C_API feedline_status feedline_batch_copy(const feedline_batch* batch, feedline_batch** copy);
FEEDLINE_C_API void feedline_batch_free(feedline_batch* batch);

/* Gives the library's log lines to `sink` instead of standard error: level 0 is information, 1 a warning, 2 an error.
   NULL is standard error again. Calls come from any thread, one at a time; the sink must not call feedline. */
FEEDLINE_C_API void feedline_set_log_sink(void (*sink)(void* context, int32_t level, const char* line), void* context);

#ifdef __cplusplus
}
#endif

#endif /* FEEDLINE_FEEDLINE_H_ */
