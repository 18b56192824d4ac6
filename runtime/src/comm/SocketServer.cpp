//===- SocketServer.cpp - rank 0's side of the socket exchange --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All connections are served concurrently, so that a silent one (port scanners
// and health checks are common) does not delay the ranks.
//
//===----------------------------------------------------------------------===//

#include "../support/Check.h"
#include "../support/Descriptor.h"
#include "../support/Random.h"
#include "Collectives.h"
#include "SocketMessages.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

namespace moert::socket_exchange {

namespace {

/// More connections wait in the system's queue.
constexpr size_t kMostPeers = 64;
/// Limits for the first bytes of a connection, and for all of its bytes.
constexpr std::chrono::seconds kFirstLimit(1), kPeerLimit(5);
/// Interval of checking the limits.
constexpr int kPollMs = 20;

enum class Moved { Some, Whole, Lost };

struct Peer {
  enum class Step { Challenge, Hello, Answer };

  explicit Peer(Descriptor socket) : socket(std::move(socket)) {}

  bool isLate() const {
    bool isSilent = step == Step::Hello && done == 0;
    return Clock::now() > begin + (isSilent ? kFirstLimit : kPeerLimit);
  }
  short events() const { return step == Step::Hello ? POLLIN : POLLOUT; }
  /// Sends or receives the available bytes of the step's message.
  Moved move();
  void go(Step next) {
    step = next;
    done = 0;
  }

  Descriptor socket;
  Clock::time_point begin = Clock::now();
  Step step = Step::Challenge;
  Challenge challenge;
  Hello hello;
  Answer answer;
  /// Bytes of the step's message already moved.
  size_t done = 0;
  /// The rank that gets the id with the answer, or -1.
  int64_t rank = -1;
};

/// The connections of ranks and of strangers.
class Server {
public:
  Server(const SocketExchange &exchange, const RankEnvironment &environment,
         const NcclUniqueId &id, Descriptor listener)
      : exchange(exchange), environment(environment), id(id),
        listener(std::move(listener)),
        isServed(static_cast<size_t>(environment.numRanks)) {
    isServed[0] = true;
  }

  Status run(double limitSeconds);

private:
  /// Waits for an event and handles it.
  void poll();
  void accept();
  /// Returns whether to keep the peer.
  bool serve(Peer &peer);
  void decide(Peer &peer);
  void drop(const Peer &peer);
  Status tooLate(double limitSeconds) const;

  const SocketExchange &exchange;
  const RankEnvironment &environment;
  const NcclUniqueId &id;
  Descriptor listener;
  std::list<Peer> peers;
  /// Ranks that have the id or are being sent it.
  std::vector<bool> isServed;
  int64_t numServed = 1, numTurnedAway = 0;
};

} // namespace

template <typename T>
static Moved moveBytes(int number, T &message, size_t &done, bool sends) {
  char *next = reinterpret_cast<char *>(&message) + done;
  size_t left = sizeof(message) - done;
  ssize_t moved = sends ? send(number, next, left, MSG_NOSIGNAL)
                        : recv(number, next, left, 0);
  if (moved < 0 && (errno == EINTR || errno == EAGAIN))
    return Moved::Some;
  if (moved <= 0)
    return Moved::Lost;
  done += static_cast<size_t>(moved);
  return done == sizeof(message) ? Moved::Whole : Moved::Some;
}

Moved Peer::move() {
  switch (step) {
  case Step::Challenge:
    return moveBytes(socket.get(), challenge, done, /*sends=*/true);
  case Step::Hello:
    return moveBytes(socket.get(), hello, done, /*sends=*/false);
  case Step::Answer:
    return moveBytes(socket.get(), answer, done, /*sends=*/true);
  }
  return Moved::Lost;
}

/// Makes the answer to a complete Hello.
void Server::decide(Peer &peer) {
  const Hello &hello = peer.hello;
  int64_t rank = loadNumber(hello.rank);
  peer.go(Peer::Step::Answer);
  if (!isEqual(hello.proof, proofOf(exchange.secret, peer.challenge, hello))) {
    // Tell a peer without the secret nothing else.
    peer.answer.verdict = Verdict::WrongSecret;
    return;
  }
  if (loadNumber(hello.numRanks) != environment.numRanks || rank < 1 ||
      rank >= environment.numRanks)
    peer.answer.verdict = Verdict::WrongRanks;
  else if (isServed[static_cast<size_t>(rank)])
    peer.answer.verdict = Verdict::RankTaken;
  else {
    peer.answer.id = id;
    peer.rank = rank;
    isServed[static_cast<size_t>(rank)] = true;
  }
  peer.answer.proof = proofOf(exchange.secret, hello, peer.answer);
}

bool Server::serve(Peer &peer) {
  Moved moved = peer.move();
  if (moved == Moved::Some)
    return true;
  if (moved == Moved::Whole && peer.step != Peer::Step::Answer) {
    if (peer.step == Peer::Step::Challenge)
      peer.go(Peer::Step::Hello);
    else
      decide(peer);
    return true;
  }
  if (moved == Moved::Whole && peer.rank >= 0)
    ++numServed;
  return false;
}

/// A rank that did not get its answer may connect again.
void Server::drop(const Peer &peer) {
  if (peer.rank >= 0 && peer.done == sizeof(Answer))
    return;
  ++numTurnedAway;
  if (peer.rank >= 0)
    isServed[static_cast<size_t>(peer.rank)] = false;
}

void Server::accept() {
  Peer peer(Descriptor(
      accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
  if (peer.socket &&
      drawRandom(peer.challenge.nonce.data(), peer.challenge.nonce.size()))
    peers.push_back(std::move(peer));
}

void Server::poll() {
  std::vector<pollfd> entries;
  for (const Peer &peer : peers)
    entries.push_back({peer.socket.get(), peer.events(), 0});
  if (peers.size() < kMostPeers)
    entries.push_back({listener.get(), POLLIN, 0});
  if (::poll(entries.data(), entries.size(), kPollMs) < 0)
    return;
  size_t index = 0;
  for (auto peer = peers.begin(); peer != peers.end(); ++index) {
    bool stays = entries[index].revents != 0 ? serve(*peer) : !peer->isLate();
    if (!stays)
      drop(*peer);
    peer = stays ? std::next(peer) : peers.erase(peer);
  }
  if (index < entries.size() && entries[index].revents != 0)
    accept();
}

Status Server::tooLate(double limitSeconds) const {
  std::vector<int64_t> missing;
  for (size_t rank = 0; rank < isServed.size(); ++rank)
    if (!isServed[rank])
      missing.push_back(int64_t(rank));
  return unavailable(
      ranksText(missing) + " did not come to " + addressText(exchange) +
      " within " + secondsText(limitSeconds) +
      (numTurnedAway > 0 ? ", and " + std::to_string(numTurnedAway) +
                               " connections were rejected (another secret, "
                               "rank or number of ranks, or no message)"
                         : "") +
      "; look for an earlier error on those ranks");
}

Status Server::run(double limitSeconds) {
  Clock::time_point end = deadline(limitSeconds);
  while (numServed < environment.numRanks) {
    if (Clock::now() >= end)
      return tooLate(limitSeconds);
    poll();
  }
  return Status::ok();
}

static Result<Descriptor> startListening(const SocketExchange &exchange) {
  Addresses addresses;
  MOERT_CHECK(addresses.find(exchange));
  int error = 0;
  for (addrinfo *entry = addresses.first; entry; entry = entry->ai_next) {
    Descriptor made(socket(entry->ai_family,
                           SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int yes = 1;
    if (made &&
        setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) ==
            0 &&
        bind(made.get(), entry->ai_addr, entry->ai_addrlen) == 0 &&
        listen(made.get(), SOMAXCONN) == 0)
      return made;
    error = errno;
  }
  return unavailable(
      "rank 0 cannot listen at " + addressText(exchange) + ": " +
      strerror(error) +
      (error == EADDRINUSE
           ? "; torchrun listens at MASTER_PORT itself: set "
             "MOERT_BOOTSTRAP_ADDRESS to host:port with a free port"
           : "; set MOERT_BOOTSTRAP_ADDRESS to an address of rank 0's host"));
}

Result<NcclUniqueId> serveRanks(const SocketExchange &exchange,
                                const RankEnvironment &environment,
                                double limitSeconds,
                                const MakeUniqueId &makeId) {
  Result<Descriptor> listener = startListening(exchange);
  if (!listener)
    return listener.status();
  Result<NcclUniqueId> id = makeId();
  if (!id)
    return id;
  MOERT_CHECK(Server(exchange, environment, *id, std::move(*listener))
                  .run(limitSeconds));
  return id;
}

} // namespace moert::socket_exchange
