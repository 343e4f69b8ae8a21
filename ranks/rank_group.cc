#include "ranks/rank_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/rank_message.h"
#include "base/utf8.h"
#include "feedline/error.h"

namespace feedline {
namespace {

constexpr uint64_t magic = 0x32306b6e61726c66;  // "flrank02"; 02 is the version of the format
constexpr size_t message_piece_bytes = 256 << 10;
constexpr uint64_t most_message_bytes = uint64_t{1} << 30;  // the maximum length of a message

std::string pack(const Error& error) {
  MessageWriter out;
  out.put(error.category());
  out.put(error.place().offset);
  out.put(error.place().record);
  for (const std::string* text : {&error.place().file, &error.place().feature, &error.message()})
    out.put_text(cut_text(*text, message_piece_bytes / 4));
  return out.take();
}

std::string pack(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return pack(error);
  } catch (const std::exception& error) {
    return pack(Error(Category::io_error, error.what()));
  } catch (...) {
    return pack(Error(Category::io_error, "the start of this rank threw an exception that is not a std::exception"));
  }
}

Error unpack(int rank, MessageReader in) {
  const auto category = in.get_enum(Category::internal_error);
  Place place;
  place.offset = in.get<int64_t>();
  place.record = in.get<int64_t>();
  place.file = in.get_text();
  place.feature = in.get_text();
  const std::string_view message = in.get_text();
  in.end();
  return Error(category, fmt::format("rank {}: {}", rank, message), place);
}

template <typename... Args>
[[noreturn]] void refuse_exchange(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Category::bad_pipeline, "exchange: " + fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

// The header of each piece of a message.
struct RankGroup::Head {
  enum Says : uint64_t { goes_on, failed, done };
  uint64_t magic;
  Says says;
  int32_t rank, size;
  uint64_t rest;  // how many bytes of the message come after this piece
};

// The result of one call of the exchange.
struct RankGroup::Pieces {
  std::vector<std::string> bytes;  // by rank: its piece
  std::vector<uint64_t> rest;      // by rank: how many bytes of its message come after its piece
  bool last = false;               // no rank has more pieces
  bool all_done = false;           // all members of among() have said `done`
};

RankGroup::RankGroup(Exchange exchange, int rank, int world_size) : exchange_(std::move(exchange)) {
  if (!exchange_) return;
  rank_ = rank;
  size_ = world_size;
}

// Exchanges one piece of every rank's message. `before`: the previous pieces of these messages; empty if there are
// none. All ranks check the same strings, so either all ranks accept them or all refuse them.
RankGroup::Pieces RankGroup::exchange_pieces(Head head, std::string_view bytes, const Pieces& before) {
  over_ = true;
  MessageWriter out;
  out.put(head);
  const std::string mine = out.take().append(bytes);
  const std::vector<std::string> all = exchange_(mine);
  std::vector<Head> heads;
  for (size_t rank = 0; rank < all.size(); rank++) {
    if (all[rank].size() < sizeof head || MessageReader(all[rank]).get<uint64_t>() != magic)
      refuse_exchange(
          "the string that the function returned for rank {} is not a message of this version of feedline; the "
          "function must return the strings of all ranks unchanged, and all ranks must run the same version",
          rank);
    heads.push_back(MessageReader(all[rank]).get<Head>());
    if (heads[rank].rank != static_cast<int64_t>(rank) || heads[rank].size != std::ssize(all))
      refuse_exchange(
          "the function returned {} strings, and the string for rank {} is from rank {} of {}; give all ranks the same "
          "world size, and return the strings in the order of the ranks",
          all.size(), rank, heads[rank].rank, heads[rank].size);
    // All pieces of a message are full, except for the last one.
    const uint64_t says = heads[rank].says, rest = heads[rank].rest, piece = all[rank].size() - sizeof head;
    const bool goes_on = says == Head::goes_on, begun = !before.rest.empty();
    if (says > Head::done || piece > message_piece_bytes || rest > most_message_bytes - piece ||
        (rest > 0 && (!goes_on || piece < message_piece_bytes)) || (says == Head::done && piece > 0) ||
        (goes_on && begun && piece + rest != before.rest[rank]))
      refuse_exchange(
          "rank {} sent {} bytes that cannot be a part of its message; the function must return the strings of all "
          "ranks unchanged, and all ranks must run the same version",
          rank, piece);
  }
  if (all.size() <= static_cast<size_t>(rank_) || all[static_cast<size_t>(rank_)] != mine)
    refuse_exchange(
        "the string that the function returned for rank {} is not the string that rank {} gave; the function must "
        "return the strings unchanged",
        rank_, rank_);
  Pieces pieces;
  for (size_t rank = 0; rank < all.size(); rank++) {
    pieces.bytes.push_back(all[rank].substr(sizeof head));
    pieces.rest.push_back(heads[rank].rest);
    if (heads[rank].says == Head::failed)
      throw unpack(static_cast<int>(rank), MessageReader(pieces.bytes[rank], static_cast<int>(rank)));
  }
  const size_t member = members_.empty() ? 0 : static_cast<size_t>(members_[0]);
  for (size_t rank = 0; rank < all.size(); rank++)
    if (heads[rank].says != (is_member(rank) ? heads[member].says : Head::done))
      refuse_exchange(
          "rank {} has made more or fewer exchanges than the other ranks; all ranks must run the same "
          "version of feedline",
          rank);
  pieces.last = std::ranges::all_of(pieces.rest, [](uint64_t rest) { return rest == 0; });
  pieces.all_done = heads[member].says == Head::done;
  over_ = false;
  return pieces;
}

std::vector<std::string> RankGroup::all_gather(std::string_view mine) {
  if (!exchange_) return {std::string(mine)};
  if (mine.size() > most_message_bytes)
    refuse_exchange(
        "this rank has {} bytes to send, but a message has at most {} bytes; use fewer files, or a larger "
        "source.index.stride",
        mine.size(), most_message_bytes);
  std::vector<std::string> all;
  for (Pieces pieces; !pieces.last;) {
    const std::string_view piece = mine.substr(0, message_piece_bytes);
    mine.remove_prefix(piece.size());
    pieces = exchange_pieces({magic, Head::goes_on, rank_, size_, mine.size()}, piece, pieces);
    all.resize(size());
    for (size_t rank = 0; rank < pieces.bytes.size(); rank++)
      if (is_member(rank)) all[number_of(static_cast<int>(rank))] += pieces.bytes[rank];
  }
  return all;
}

size_t RankGroup::number_of(int rank) const noexcept {
  if (members_.empty()) return static_cast<size_t>(rank);
  return static_cast<size_t>(std::find(members_.begin(), members_.end(), rank) - members_.begin());
}

bool RankGroup::is_member(size_t rank) const noexcept {
  return members_.empty() || number_of(static_cast<int>(rank)) < members_.size();
}

void RankGroup::among(const std::vector<int>& members, const std::function<void(RankGroup&)>& body) {
  if (!exchange_) return body(*this);
  members_ = members;
  if (is_member(static_cast<size_t>(rank_))) {
    body(*this);
    // All members make equally many calls, so they all say `done` in the same round.
    exchange_pieces({magic, Head::done, rank_, size_, 0}, {}, {});
  } else {
    while (!exchange_pieces({magic, Head::done, rank_, size_, 0}, {}, {}).all_done) {
    }
  }
  members_.clear();
}

void RankGroup::tell(const std::exception_ptr& failure) noexcept try {
  exchange_pieces({magic, Head::failed, rank_, size_, 0}, pack(failure), {});
} catch (...) {
  // This rank throws its own exception in any case, even if the other ranks cannot be told.
}

void RankGroup::run(const std::function<void()>& start) {
  if (!exchange_) return start();
  try {
    start();
    all_gather({});
  } catch (...) {
    if (!over_) tell(std::current_exception());
    throw;
  }
}

}  // namespace feedline
