// Ranks as processes with an exchange over sockets: they share the counting, and each is told of the others' failures.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <stdexcept>

#include "feedline/feeder.h"
#include "feedline/records.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::test;

namespace {

void write_all(int fd, const void* data, size_t size) {
  for (auto* at = static_cast<const char*>(data); size > 0;) {
    const ssize_t some = send(fd, at, size, MSG_NOSIGNAL);
    if (some <= 0) throw std::runtime_error("the other end is gone");
    at += some;
    size -= static_cast<size_t>(some);
  }
}
void write_text(int fd, std::string_view text) {
  const uint64_t size = text.size();
  write_all(fd, &size, sizeof size);
  write_all(fd, text.data(), text.size());
}
void read_all(int fd, void* data, size_t size) {
  if (size > 0 && recv(fd, data, size, MSG_WAITALL) != static_cast<ssize_t>(size))
    throw std::runtime_error("the other end is gone");
}
std::string read_text(int fd) {
  uint64_t size = 0;
  read_all(fd, &size, sizeof size);
  std::string text(size, '\0');
  read_all(fd, text.data(), size);
  return text;
}

/// What a process wrote, and how it ended. While the processes run, the parent passes every rank's string to all ranks,
/// until a rank ends.
struct Ended {
  std::string said;
  int status = 0;
};
std::vector<Ended> in_processes(int count, const std::function<std::string(int rank, const Exchange&)>& body) {
  std::vector<int> sockets, pipes;
  std::vector<pid_t> children;
  for (int rank = 0; rank < count; rank++) {
    int sides[2], pipe_ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sides) == 0);
    REQUIRE(pipe(pipe_ends) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      for (const int other : sockets) close(other);  // otherwise the end of another rank would not be noticed
      close(sides[0]);
      std::string said;
      try {
        said = body(rank, [&](std::string_view mine) {
          write_text(sides[1], mine);
          std::vector<std::string> all;
          for (int i = 0; i < count; i++) all.push_back(read_text(sides[1]));
          return all;
        });
      } catch (const std::exception& error) {
        said = error.what();
      }
      close(sides[1]);
      _exit(write(pipe_ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    close(sides[1]);
    close(pipe_ends[1]);
    sockets.push_back(sides[0]);
    pipes.push_back(pipe_ends[0]);
    children.push_back(child);
  }
  try {
    for (;;) {
      std::vector<std::string> all;
      for (const int socket : sockets) all.push_back(read_text(socket));
      for (const int socket : sockets)
        for (const std::string& text : all) write_text(socket, text);
    }
  } catch (const std::exception&) {
    for (const int socket : sockets) close(socket);
  }
  std::vector<Ended> ended(static_cast<size_t>(count));
  for (size_t rank = 0; rank < ended.size(); rank++) {
    char buffer[4096];
    for (ssize_t some; (some = read(pipes[rank], buffer, sizeof buffer)) > 0;)
      ended[rank].said.append(buffer, static_cast<size_t>(some));
    close(pipes[rank]);
    waitpid(children[rank], &ended[rank].status, 0);
  }
  return ended;
}

constexpr int records = 9000;

/// One file with records of 1000 bytes, each of which begins with its number.
struct Folder {
  Folder() {
    RecordWriter writer(dir.file("data"));
    for (int i = 0; i < records; i++) {
      std::string record = std::to_string(i);
      record.resize(984, ' ');
      writer.write(std::as_bytes(std::span(record)));
    }
    writer.close();
  }
  Pipeline pipeline() const {
    return parse_pipeline(
        "source { files: 'data' record_type: RAW } feature { name: 'record' dtype: BYTES length: 984 } shuffle {} "
        "batch { global_batch_size: 600 }",
        dir.path());
  }
  TempDir dir;
};

}  // namespace

TEST_CASE("processes count one file together and feed all of it once") {
  for (const int ranks : {2, 3, 4}) {
    const Folder folder;
    const auto ended = in_processes(ranks, [&](int rank, const Exchange& exchange) {
      uint64_t counted = 0;
      Options options{.rank = rank, .world_size = ranks};
      options.exchange = exchange;
      options.on_progress = [&](uint64_t done, uint64_t) { counted = done; };
      Feeder feeder(folder.pipeline(), options);
      std::string said = std::to_string(counted);
      while (const Batch batch = feeder.next()) {
        const TensorView view = batch.at("record");
        const auto bytes = view.as<uint8_t>();
        for (size_t row = 0; row < static_cast<size_t>(batch.rows()); row++)
          said += " " + std::to_string(std::atoi(reinterpret_cast<const char*>(bytes.data()) + row * 984));
      }
      return said;
    });
    uint64_t counted = 0;
    std::vector<int> ids;
    for (const Ended& rank : ended) {
      INFO(rank.said.substr(0, 200));
      CHECK(rank.status == 0);
      std::istringstream in(rank.said);
      uint64_t mine = 0;
      in >> mine;
      CHECK(mine <= records * 1000 / static_cast<uint64_t>(ranks) + (1 << 20));
      counted += mine;
      for (int id = 0; in >> id;) ids.push_back(id);
    }
    CHECK(counted == records * 1000);
    std::sort(ids.begin(), ids.end());
    REQUIRE(ids.size() == records);
    for (int id = 0; id < records; id++) REQUIRE(ids[static_cast<size_t>(id)] == id);
  }
}

TEST_CASE("a process that is killed while it counts leaves the others an exchange that throws") {
  const Folder folder;
  const auto ended = in_processes(3, [&](int rank, const Exchange& exchange) -> std::string {
    Options options{.rank = rank, .world_size = 3};
    options.exchange = exchange;
    options.on_progress = [&](uint64_t, uint64_t) {
      if (rank == 1) raise(SIGKILL);
    };
    Feeder feeder(folder.pipeline(), options);
    return "started";
  });
  CHECK(WTERMSIG(ended[1].status) == SIGKILL);
  for (const size_t rank : {0, 2}) CHECK(ended[rank].said == "the other end is gone");
}

TEST_CASE("a process that cannot start says why to the others") {
  const Folder folder;
  const auto ended = in_processes(3, [&](int rank, const Exchange& exchange) -> std::string {
    Options options{.rank = rank, .world_size = 3};
    options.exchange = exchange;
    Feeder feeder(rank == 2 ? folder.pipeline().with("source.files", "missing") : folder.pipeline(), options);
    return "started";
  });
  for (const size_t rank : {0, 1}) CHECK(ended[rank].said.find("rank 2: source.files: ") == 0);
  CHECK(ended[2].said.find("source.files: ") == 0);
}
