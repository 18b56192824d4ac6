//===- SocketExchange.cpp - rendezvous by a socket --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
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
#include <thread>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

namespace moert {

namespace socket_exchange {

/// Whether one of `events` occurs at the socket before `end`.
static bool waitFor(int number, short events, Clock::time_point end) {
  while (true) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - Clock::now());
    if (left.count() < 0)
      return false;
    pollfd entry = {number, events, 0};
    int64_t most = 1000;
    int came = poll(&entry, 1, int(std::min(left.count() + 1, most)));
    if (came > 0)
      return true;
    if (came < 0 && errno != EINTR)
      return false;
  }
}

/// Sends or receives a whole object; returns whether that succeeded in time.
template <typename T, typename Transfer>
static bool moveAll(int number, T &object, short events, Clock::time_point end,
                    Transfer transfer) {
  char *next = reinterpret_cast<char *>(&object);
  size_t left = sizeof(object);
  while (left > 0) {
    if (!waitFor(number, events, end))
      return false;
    ssize_t moved = transfer(number, next, left);
    if (moved < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (moved <= 0)
      return false;
    next += moved;
    left -= static_cast<size_t>(moved);
  }
  return true;
}

template <typename T>
static bool sendAll(int number, T object, Clock::time_point end) {
  return moveAll(number, object, POLLOUT, end,
                 [](int number, char *data, size_t size) {
                   return send(number, data, size, MSG_NOSIGNAL);
                 });
}

template <typename T>
static bool receiveAll(int number, T &object, Clock::time_point end) {
  return moveAll(number, object, POLLIN, end,
                 [](int number, char *data, size_t size) {
                   return recv(number, data, size, 0);
                 });
}

/// A connected socket, or none, since rank 0 may not be listening yet.
static Descriptor tryConnect(const Addresses &addresses, Clock::time_point end,
                             int &error) {
  for (addrinfo *entry = addresses.first; entry; entry = entry->ai_next) {
    Descriptor made(socket(entry->ai_family,
                           SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made) {
      error = errno;
      continue;
    }
    if (connect(made.get(), entry->ai_addr, entry->ai_addrlen) == 0)
      return made;
    error = errno;
    if (error != EINPROGRESS)
      continue;
    error = ETIMEDOUT;
    socklen_t size = sizeof(error);
    if (waitFor(made.get(), POLLOUT, end) &&
        getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
        error == 0)
      return made;
  }
  return Descriptor();
}

static Status checkVerdict(const std::string &where, Verdict verdict,
                           const RankEnvironment &environment) {
  std::string rank = "rank " + std::to_string(environment.rank);
  switch (verdict) {
  case Verdict::Welcome:
    return Status::ok();
  case Verdict::WrongSecret:
    return invalidArgument(
        where + ": rank 0 has another secret than " + rank +
        "; set the same MOERT_BOOTSTRAP_SECRET on all ranks");
  case Verdict::WrongRanks:
    return invalidArgument(where +
                           ": rank 0 has another number of ranks than "
                           "the " +
                           std::to_string(environment.numRanks) + " of " +
                           rank +
                           "; set the same WORLD_SIZE on all ranks, and RANK "
                           "to a number below it");
  case Verdict::RankTaken:
    return invalidArgument(
        where + ": " + rank +
        " has connected already; give each process its own RANK");
  }
  return invalidArgument(
      where + ": another program than rank 0 answers; check the port");
}

/// Gets the id from rank 0; returns whether there was an answer.
static Result<bool> ask(int number, const SocketExchange &exchange,
                        const RankEnvironment &environment,
                        Clock::time_point end, NcclUniqueId &id) {
  std::string where = addressText(exchange);
  Challenge challenge;
  if (!receiveAll(number, challenge, end))
    return false;
  if (memcmp(challenge.magic, Challenge().magic, sizeof(challenge.magic)) != 0)
    return invalidArgument(
        where + ": another program than rank 0 answers; check the port");
  Hello hello;
  storeNumber(hello.rank, environment.rank);
  storeNumber(hello.numRanks, environment.numRanks);
  MOERT_CHECK(drawRandom(hello.nonce.data(), hello.nonce.size()));
  hello.proof = proofOf(exchange.secret, challenge, hello);
  Answer answer;
  if (!sendAll(number, hello, end) || !receiveAll(number, answer, end))
    return false;
  bool isProven =
      isEqual(answer.proof, proofOf(exchange.secret, hello, answer));
  if (!isProven && answer.verdict != Verdict::WrongSecret)
    return invalidArgument(
        where +
        ": the program that answers does not know the secret; check the port");
  MOERT_CHECK(checkVerdict(where, answer.verdict, environment));
  id = answer.id;
  return true;
}

static Result<NcclUniqueId> askRank0(const SocketExchange &exchange,
                                     const RankEnvironment &environment,
                                     double limitSeconds) {
  Clock::time_point end = deadline(limitSeconds);
  Addresses addresses;
  MOERT_CHECK(addresses.find(exchange));
  int error = 0;
  do {
    if (Descriptor made = tryConnect(addresses, end, error)) {
      NcclUniqueId id;
      Result<bool> isAnswered = ask(made.get(), exchange, environment, end, id);
      if (!isAnswered)
        return isAnswered.status();
      if (*isAnswered)
        return id;
      error = ECONNRESET;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (Clock::now() < end);
  return unavailable("rank 0 does not answer at " + addressText(exchange) +
                     " within " + secondsText(limitSeconds) + ": " +
                     strerror(error) +
                     "; look for an earlier error of rank 0, and check that "
                     "all ranks have the same address");
}

} // namespace socket_exchange

Result<NcclUniqueId> exchangeBySocket(const SocketExchange &exchange,
                                      const RankEnvironment &environment,
                                      double limitSeconds,
                                      const MakeUniqueId &makeId) {
  MOERT_CHECK(checkLimit(limitSeconds));
  return environment.rank == 0
             ? socket_exchange::serveRanks(exchange, environment, limitSeconds,
                                           makeId)
             : socket_exchange::askRank0(exchange, environment, limitSeconds);
}

} // namespace moert
