// Pipelines that several tests use.
#pragma once

namespace feedline::test {

/// Chess positions: bit planes unpacked from bytes, and formulas.
inline constexpr const char* chess_pipeline = R"text(
source   { files: "data/chess-*.tfrecord" }
feature  { name: "d" dtype: BYTES length: 194 }            # exactly 194 bytes in every record
feature  { name: "s" dtype: INT64 }
batch    { global_batch_size: 512 last_batch_policy: DROP }
output   { name: "board" dtype: FLOAT32 feature: "d"
           unpack_bits { shape: [8, 8, 24] channel_order: [0,4,8,12,16,20,1,5,9,13,17,21,2,6,10,14,18,22,3,7,11,15,19,23]
                         scale: [1,1,1,1,1,1,-1,-1,-1,-1,-1,-1,1,1,1,1,1,1,-1,-1,-1,-1,-1,-1] } }
output   { name: "flags" dtype: FLOAT32 feature: "d" unpack_bits { bit_offset: 1536 shape: [10] } }
output   { name: "mate"  dtype: FLOAT32 feature: "d" unpack_bits { bit_offset: 1546 } internal: true }
output   { name: "score" dtype: FLOAT64 expression { formula: "(1-out.mate)*A*tanh(s/K) + out.mate*sign(s)*(A+(1-A)/(B-1)*max(0,B-abs(s)))"
           constants { key: "A" value: 0.95 } constants { key: "K" value: 600 } constants { key: "B" value: 60 } } }
)text";

/// Images as they are stored, normalised and transposed.
inline constexpr const char* image_pipeline = R"text(
source  { files: "images/*.tfrecord" }
feature { name: "image" dtype: BYTES }
feature { name: "label" dtype: INT64 }
batch   { global_batch_size: 64 last_batch_policy: PAD valid_mask: "valid" }
output  { name: "image" dtype: FLOAT16 feature: "image" decode_raw { shape: [3, 32, 32] layout: CHW }
          normalize { scale: 0.00392156862745098 mean: [0.485, 0.456, 0.406] std: [0.229, 0.224, 0.225] } layout: HWC }
output  { name: "label" dtype: INT32 feature: "label" }
)text";

/// Rows of a table with gaps.
inline constexpr const char* table_pipeline = R"text(
source  { name: "2024" files: "2024/*.tfrecord" exclude: "*-bad.tfrecord" compression: GZIP record_limit: "1MiB" }
source  { name: "2025" files: ["2025/a.tfrecord", "2025/b.tfrecord"] }
feature { name: "age" dtype: INT64 default_value { int64_value: -1 } }
feature { name: "fare" dtype: FLOAT32 default_value { float32_value: nan } }
feature { name: "rooms" dtype: INT64 shape: [3] default_value { int64_value: 0 } }
feature { name: "words" key: "text/words" dtype: BYTES kind: VARIABLE max_values: 100 }
feature { name: "clicks" dtype: INT64 kind: RAGGED }
feature { name: "steps" dtype: FLOAT32 kind: FIXED_SEQUENCE shape: [2] default_value { float32_value: -1 } max_values: 64 }
batch   { batch_size_per_replica: 32 last_batch_policy: PARTIAL }
epoch   { repeat: -1 }
output  { name: "x" dtype: FLOAT32 stack { features: ["age", "fa*"] } normalize { mean: [30, 10] std: [12, 5] } }
output  { name: "rooms" feature: "rooms" }
output  { name: "words" feature: "words" }
output  { name: "clicks" dtype: INT32 feature: "clicks" }
output  { name: "steps" feature: "steps" }
output  { name: "at" feature: "@offset" }
output  { name: "rich" dtype: BOOL expression { formula: "fare > 100 and age >= 18" } }
errors  { on_error: SKIP_RECORD max_failures: 10 max_failure_rate: 0.01 }
memory  { limit: "256MiB" }
parallelism { threads: 3 host_prefetch: 4 }
seed: 42
)text";

}  // namespace feedline::test
