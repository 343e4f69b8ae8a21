// How the ranks of a group find one another: each comes to rank 0, which tells all where the others are; then each
// connects to those before it.
//
//   rank r -> rank 0    Hello: who I am, where I listen
//   rank 0 -> rank r    Welcome: the group's token, and where each rank listens; or why there will be no group
//   rank r -> rank q<r  Join, twice: a connection for data, and one for notes
//   rank r -> rank 0    one byte: I have all of mine
//   rank 0 -> rank r    Welcome: so have all; or why there will be no group
//
// So all have a group, or none, but for a rank that ends in the last step. Whoever else comes to a port, with other
// words or none, keeps nobody waiting and is sent away.
#pragma once

#include <chrono>
#include <vector>

#include "feedline/tcp_communicator.h"
#include "ranks/rank_group.h"
#include "ranks/tcp/sockets.h"

namespace feedline::gpu {

struct TcpPeer {
  Socket data, notes;
};

/// By rank; of this one itself nothing. ranks: by them rank 0 says where it is; null: the options do. Throws Error.
/// A rank that has waited for `long_wait`, twice as long, four times, ... logs for whom; rank 0 names the ranks that
/// have come, and those that have not.
std::vector<TcpPeer> meet(TcpOptions options, RankGroup* ranks,
                          std::chrono::milliseconds long_wait = std::chrono::seconds(5));

}  // namespace feedline::gpu
