// How the ranks of a group find one another over TCP. Each rank connects to rank 0, which tells all ranks where the
// others listen. Then each rank connects to all ranks with smaller numbers.
//
//   rank 0 -> rank r    Challenge: random bytes; with them the next message proves that its sender knows the secret
//   rank r -> rank 0    Hello: who I am, where I listen; and random bytes for the proof in the answer
//   rank 0 -> rank r    Welcome: the group's number, and where each rank listens; or why there will be no group
//   rank r -> rank q<r  Join, twice: for a connection for data, and for one for control messages. Rank q has sent a
//                       Challenge on each before, and answers with a Joined, which has the proof of rank q
//   rank r -> rank 0    one byte: I have all my connections
//   rank 0 -> rank r    Welcome: all ranks are connected; or why there will be no group
//
// The secret is TcpOptions::token; ranks without one prove that they know an empty one. The group's number is random:
// by it ranks recognise the connections of their group. Either all ranks get a group or none does, with one exception:
// if a rank ends during the last step, some ranks may have a group and others not. Any other program that connects to
// one of the ports is disconnected, and so is a process whose secret, world size or rank is wrong. No rank waits for
// them.
#pragma once

#include <chrono>
#include <vector>

#include "base/net/sockets.h"
#include "feedline/tcp_communicator.h"
#include "ranks/rank_group.h"

namespace feedline::ranks {

/// The two connections to another rank: one for data, and one for notes, which are the control messages.
struct TcpPeer {
  net::Socket data, notes;
};

/// Connects this rank to all others. Returns the connections by rank; the entry of this rank itself is empty. If
/// `ranks` is not null, rank 0 sends its addresses and port through `ranks`; otherwise `options` must name them. Throws
/// the Errors of tcp_communicator(). A rank that has waited for `long_wait`, twice as long, four times as long, ...
/// logs for which ranks it waits. Rank 0 logs the ranks that have connected to it and those that have not.
std::vector<TcpPeer> meet(TcpOptions options, RankGroup* ranks,
                          std::chrono::milliseconds long_wait = std::chrono::seconds(5));

}  // namespace feedline::ranks
