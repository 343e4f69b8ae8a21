#include "fake_nccl.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "fake_cuda.h"

namespace {

using feedline::test::fake_pages;

// Never destroyed, like the fake streams.
std::mutex& mutex = *new std::mutex;  // guards all state of this file
std::condition_variable& changed = *new std::condition_variable;
std::set<ncclComm_t>& comms = *new std::set<ncclComm_t>;
uint64_t ids = 0;

// Data on its way from one rank to another.
struct Message {
  const std::byte* from;  // null: the sender was aborted and the data will not come
  size_t bytes;
  bool taken = false;
};
struct Group {
  int joined = 0;
  std::set<int> devices;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> ways;
  // How many ranks exchange data now, and the streams that will do so. Each rank that does waits for these, too.
  int exchanging = 0;
  std::multiset<cudaStream_t> to_come;
};
std::map<uint64_t, std::shared_ptr<Group>>& groups = *new std::map<uint64_t, std::shared_ptr<Group>>;

// Shared, because streams may still reach the work given to a communicator after it has ended.
struct State {
  std::shared_ptr<Group> group;
  int rank, size, under_way = 0;
  bool aborted = false, refused = false;
  std::function<void()> to_launch = {};  // run by the next ncclCommGetAsyncError, not by a thread as in NCCL
  cudaStream_t launches_on = nullptr;
};

}  // namespace

struct ncclComm {
  std::shared_ptr<State> state;
};

namespace {

struct Op {
  bool sends;
  int peer;
  const void* data;
  size_t bytes;
};
struct Given {
  std::vector<Op> ops;
  std::shared_ptr<State> state;
  cudaStream_t stream = nullptr;
};
thread_local int depth = 0;
thread_local Given given;

// Runs on `stream`. Posts all sends of the group before it waits for any receive, so that the calls of a group progress
// together whatever their order.
void exchange(State& state, const std::vector<Op>& ops, cudaStream_t stream) {
  std::unique_lock lock(mutex);
  Group& group = *state.group;
  group.to_come.erase(group.to_come.find(stream));
  group.exchanging++;
  for (const cudaStream_t other : group.to_come) feedline::test::want_work(other);
  std::vector<std::shared_ptr<Message>> sent;
  for (const Op& op : ops) {
    if (!op.sends) continue;
    const auto* const from = fake_pages(op.data);
    sent.push_back(std::make_shared<Message>(Message{from, op.bytes}));
    group.ways[{state.rank, op.peer}].push_back(sent.back());
  }
  changed.notify_all();
  for (const Op& op : ops) {
    if (op.sends) continue;
    auto& way = group.ways[{op.peer, state.rank}];
    changed.wait(lock, [&] { return state.aborted || (!way.empty() && way.front()->from); });
    if (state.aborted) break;
    const auto message = way.front();
    way.pop_front();
    if (message->bytes == op.bytes) std::memmove(fake_pages(op.data), message->from, op.bytes);
    message->taken = true;
    changed.notify_all();
  }
  for (const auto& message : sent) {
    changed.wait(lock, [&] { return state.aborted || message->taken; });
    message->from = nullptr;  // after an abort, withdraws what no rank has taken
  }
  group.exchanging--;
  state.under_way--;
  changed.notify_all();
}

ncclResult_t give() {
  Given now = std::exchange(given, {});
  if (now.ops.empty()) return ncclSuccess;
  const std::lock_guard lock(mutex);
  now.state->under_way++;
  now.state->launches_on = now.stream;
  now.state->to_launch = [stream = now.stream, state = now.state, ops = std::move(now.ops)] {
    state->group->to_come.insert(stream);
    feedline::test::run_on_stream(stream, [state, ops, stream] { exchange(*state, ops, stream); });
    if (state->group->exchanging > 0) feedline::test::want_work(stream);
  };
  return ncclInProgress;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, std::vector<Op> ops) {
  if (comm->state->to_launch) return ncclInvalidArgument;  // the previous call is still in progress
  given.ops.insert(given.ops.end(), ops.begin(), ops.end());
  given.state = comm->state;
  given.stream = stream;
  return depth > 0 ? ncclSuccess : give();
}

void end(ncclComm_t comm) {
  comms.erase(comm);
  delete comm;
}

}  // namespace

size_t feedline::test::fake_comms() {
  const std::lock_guard lock(mutex);
  return comms.size();
}

bool feedline::test::fake_nccl_launches_on(CUstream_st* stream) {
  const std::lock_guard lock(mutex);
  return std::ranges::any_of(
      comms, [&](ncclComm_t comm) { return comm->state->to_launch && comm->state->launches_on == stream; });
}

extern "C" {

const char* ncclGetErrorString(ncclResult_t) { return "a simulated error"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(mutex);
  ids++;
  std::memcpy(id->internal, &ids, sizeof ids);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidArgument;  // a blocking communicator would hang this fake
  int device = -1;
  cudaGetDevice(&device);
  const std::lock_guard lock(mutex);
  uint64_t number;
  std::memcpy(&number, id.internal, sizeof number);
  auto& group = groups[number];
  if (!group) group = std::make_shared<Group>();
  group->joined++;
  *comm = new ncclComm{std::make_shared<State>(State{group, rank, ranks})};
  (*comm)->state->refused = !group->devices.insert(device).second;  // true if two ranks use one GPU
  comms.insert(*comm);
  if (group->joined == ranks) groups.erase(number);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  State& of = *comm->state;
  const std::lock_guard lock(mutex);
  if (of.to_launch) {
    std::exchange(of.to_launch, nullptr)();
    *state = ncclInProgress;
    return ncclSuccess;
  }
  *state = of.refused ? ncclInvalidUsage : of.group->joined < of.size ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclInProgress; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return comm->state->under_way == 0; });
  end(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  comm->state->aborted = true;
  comm->state->to_launch = nullptr;
  changed.notify_all();
  end(comm);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  depth++;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() { return --depth > 0 ? ncclSuccess : give(); }

ncclResult_t ncclSend(const void* data, size_t bytes, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {{true, peer, data, bytes}});
}
ncclResult_t ncclRecv(void* data, size_t bytes, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {{false, peer, data, bytes}});
}
ncclResult_t ncclAllGather(const void* mine, void* all, size_t bytes, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t stream) {
  std::vector<Op> ops;
  for (int rank = 0; rank < comm->state->size; rank++) {
    ops.push_back({true, rank, mine, bytes});
    ops.push_back({false, rank, static_cast<std::byte*>(all) + static_cast<size_t>(rank) * bytes, bytes});
  }
  return add(comm, stream, ops);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t bytes, ncclDataType_t, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  std::vector<Op> ops;
  const State& state = *comm->state;
  for (int rank = 0; state.rank == root && rank < state.size; rank++) ops.push_back({true, rank, from, bytes});
  ops.push_back({false, root, to, bytes});
  return add(comm, stream, ops);
}

}  // extern "C"
