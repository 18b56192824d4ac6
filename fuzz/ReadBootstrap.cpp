//===- ReadBootstrap.cpp - messages at the start of ranks -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../runtime/src/comm/Bootstrap.h"
#include "RuntimeReaders.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace moec::testing;
namespace fs = std::filesystem;

/// Seconds that a rank waits for a silent peer.
static constexpr double kLimit = 0.005;

static moert::RankEnvironment makeRank(int64_t rank) {
  moert::RankEnvironment environment;
  environment.rank = rank;
  environment.numRanks = 2;
  return environment;
}

static moert::Result<moert::NcclUniqueId> makeId() {
  return moert::NcclUniqueId{};
}

namespace {

/// File names of a start with the token `job` and two ranks (FileExchange.cpp).
constexpr char kClaim[] = "moert-5e8c9902207afaeb.id";
constexpr char kRequest[] = "moert-5e8c9902207afaeb.1.request";
constexpr char kAnswer[] = "moert-5e8c9902207afaeb.1.answer";

/// A private folder in which a stranger leaves the files of a start.
class Folder {
public:
  Folder() : exchange{"", "job"} {
    std::string text = (fs::temp_directory_path() / "moert-XXXXXX").string();
    exchange.folder = mkdtemp(text.data());
    checkNames();
  }
  ~Folder() { fs::remove_all(exchange.folder); }

  /// Lets a rank find `bytes` under the name.
  Reading read(int64_t rank, const char *name, llvm::StringRef bytes) const {
    std::ofstream(pathOf(name), std::ios::binary) << bytes.str();
    bool accepted =
        bool(moert::exchangeByFile(exchange, makeRank(rank), kLimit, makeId));
    for (const char *left : {kClaim, kRequest, kAnswer})
      fs::remove(pathOf(left));
    // A stranger cannot know the nonces of this start, so no file may be
    // accepted.
    return {accepted, accepted ? "a stranger's file is believed" : ""};
  }

private:
  fs::path pathOf(const char *name) const {
    return fs::path(exchange.folder) / name;
  }

  /// Checks the names above against the runtime's; others would test nothing.
  void checkNames() const {
    std::thread rank0(
        [&] { (void)moert::exchangeByFile(exchange, makeRank(0), 1, makeId); });
    bool isAnswered =
        bool(moert::exchangeByFile(exchange, makeRank(1), 1, makeId));
    rank0.join();
    if (!isAnswered || !fs::remove(pathOf(kClaim)))
      abort();
  }

  moert::FileExchange exchange;
};

/// A loopback socket that is bound to a port.
class Socket {
public:
  Socket() : number(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(number, get(), size) != 0 || getsockname(number, get(), &size))
      abort();
  }
  ~Socket() { close(number); }

  sockaddr *get() { return reinterpret_cast<sockaddr *>(&address); }
  moert::SocketExchange getExchange() const {
    moert::SocketExchange exchange;
    exchange.port = ntohs(address.sin_port);
    exchange.secret.fill(7);
    return exchange;
  }

  const int number;
  sockaddr_in address = {};
};

} // namespace

static void sayAndClose(int peer, llvm::StringRef bytes) {
  (void)send(peer, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  shutdown(peer, SHUT_WR);
  char byte = 0;
  while (recv(peer, &byte, 1, 0) > 0) {
  }
  close(peer);
}

/// Lets a rank query a stranger that answers `bytes`.
static Reading askStranger(llvm::StringRef bytes) {
  Socket listener;
  listen(listener.number, 4);
  std::thread stranger([&] {
    for (int peer = 0; peer >= 0;)
      if (peer = accept(listener.number, nullptr, nullptr); peer >= 0)
        sayAndClose(peer, bytes);
  });
  bool accepted = bool(moert::exchangeBySocket(listener.getExchange(),
                                               makeRank(1), kLimit, makeId));
  shutdown(listener.number, SHUT_RDWR);
  stranger.join();
  return {accepted, accepted ? "rank 1 believes a stranger" : ""};
}

/// Sends `bytes` to rank 0 as a stranger.
static Reading hearStranger(llvm::StringRef bytes) {
  moert::SocketExchange exchange = Socket().getExchange();
  bool accepted = false;
  std::thread rank0([&] {
    accepted =
        bool(moert::exchangeBySocket(exchange, makeRank(0), kLimit, makeId));
  });
  Socket stranger;
  sockaddr_in to = stranger.address;
  to.sin_port = htons(static_cast<uint16_t>(exchange.port));
  int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // Retries, because rank 0 may not listen yet.
  for (int i = 0; i < 20; ++i) {
    if (connect(peer, reinterpret_cast<sockaddr *>(&to), sizeof(to)) == 0)
      break;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  sayAndClose(peer, bytes);
  rank0.join();
  return {accepted, accepted ? "rank 0 believes a stranger" : ""};
}

Reading moec::testing::readBootstrap(llvm::StringRef bytes) {
  static const Folder folder;
  if (bytes.empty())
    return {false, ""};
  llvm::StringRef rest = bytes.drop_front();
  switch (bytes[0] % 5) {
  case 0:
    return folder.read(1, kClaim, rest);
  case 1:
    return askStranger(rest);
  case 2:
    return hearStranger(rest);
  case 3:
    return folder.read(1, kAnswer, rest);
  default:
    return folder.read(0, kRequest, rest);
  }
}
