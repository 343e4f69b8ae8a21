#!/usr/bin/env bash
# demo_feed.sh TOOL FOLDER [MEGABYTES [REPLICAS]]: makes sample data in FOLDER (100 MB) by repeating records of the tests,
# and feeds it to virtual replicas (2), with the pipelines of examples/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tool=$1 folder=$2 megabytes=${3:-100} replicas=${4:-2} epochs=10 shards=4 sets=5
trap 'exit' INT

# set_up NAME BATCH EXAMPLE FILE...: writes shards that repeat the records of these files of tests/golden. Writes
# NAME.textproto, the pipeline of EXAMPLE for these shards, and for batches of BATCH rows.
set_up() {
  local name=$1 batch=$2 example=$3 files=("${@:4}") bytes number
  files=("${files[@]/#/tests/golden/}")
  bytes=$(cat "${files[@]}" | wc -c)
  for ((number = 0; number < shards; number++)); do
    for ((written = 0; written < megabytes * 1000000 / sets / shards; written += bytes)); do
      printf '%s\n' "${files[@]}"
    done | xargs cat > "$(printf '%s/%s-%05d-of-%05d.tfrecord' "$folder" "$name" $number $shards)"
  done
  sed -e "s|files: \".*\"|files: \"$name-*.tfrecord\"|" -e "s|global_batch_size: [0-9]*|global_batch_size: $batch|" \
    -e "s|global_batch_size: $batch }|global_batch_size: $batch last_batch_policy: PARTIAL }|" \
    "examples/$example.textproto" > "$folder/$name.textproto"
}

mkdir -p "$folder"
echo "Making about $megabytes MB of sample data in $folder/ by repeating real records."
set_up chess 1024 chess chess/main-0000{0,1,2}-of-00003.tfrecord
set_up photos 128 photos images/photos_raw.tfrecord
set_up planar 512 cifar images/cifar_like.tfrecord
set_up digits 1024 digits images/digits_raw.tfrecord
set_up penguins 1024 penguins tabular/penguins.tfrecord
cp examples/{species,sexes}.txt "$folder"

# feed NAME WHAT: feeds the set, with a live view. Then says how fast that was.
feed() {
  printf '%-9s %s\n' "$1" "$2"
  "$tool" run "$folder/$1.textproto" --replicas "$replicas" --epochs "$epochs" |
    sed -n -e '1s/^/          /p' -e 's/.*\(first batch after [^,]*\).*/          \1/p'
}

echo "Feeding $epochs epochs of each set to $replicas virtual replicas. There is no trainer, so the feed runs at full speed."
echo
feed chess "positions of 194 bytes into float32 boards"
feed photos "64x64 photographs into normalised float32, channels first"
feed planar "32x32 planar pictures (CHW) into normalised float16"
feed digits "8x8 digits into normalised float32"
feed penguins "measurements, some of them missing, and words as numbers"

cat << TEXT

Look at what was fed:
  $tool inspect $folder/penguins-*.tfrecord
  $tool cat --limit 2 $folder/penguins-00000-of-00004.tfrecord
  $tool run $folder/chess.textproto --replicas 2 --step-ms 5

Now your own files:
  $tool inspect FILE...                                # what is in them
  $tool inspect --pipeline FILE... > mine.textproto    # a pipeline for them
  $tool check mine.textproto                           # counts, batches, and every byte of memory
  $tool run mine.textproto                             # how fast it feeds
TEXT
