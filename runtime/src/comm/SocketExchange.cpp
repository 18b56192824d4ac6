//===- SocketExchange.cpp - ranks find each other by a socket ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Three messages of fixed sizes: rank 0 sends a Challenge, the other rank its
// Hello, rank 0 its Answer. Each side proves that it knows the secret by an
// HMAC-SHA-256 over what both have drawn, so nobody learns it by listening.
//
//===----------------------------------------------------------------------===//

#include "../support/Check.h"
#include "../support/Sha256.h"
#include "Bootstrap.h"
#include "Collectives.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

namespace moert {

namespace {

using Clock = std::chrono::steady_clock;
using Secret = std::array<uint8_t, 32>;

/// What a rank that has connected may take for its messages.
constexpr std::chrono::seconds kPeerLimit(5);

struct Challenge {
  char magic[8] = {'m', 'o', 'e', 'r', 't', 's', 'k', '1'};
  std::array<uint8_t, 32> nonce = {};
};

struct Hello {
  uint8_t rank[4] = {};
  uint8_t numRanks[4] = {};
  std::array<uint8_t, 32> nonce = {};
  Sha256Digest proof = {};
};

enum class Verdict : uint8_t { Welcome, WrongSecret, WrongRanks, RankTaken };

struct Answer {
  Verdict verdict = Verdict::Welcome;
  NcclUniqueId id = {};
  Sha256Digest proof = {};
};

/// A socket that is closed.
class Socket {
public:
  explicit Socket(int number = -1) : number(number) {}
  Socket(Socket &&other) noexcept : number(other.number) { other.number = -1; }
  Socket(const Socket &) = delete;
  Socket &operator=(const Socket &) = delete;
  ~Socket() {
    if (number >= 0)
      close(number);
  }

  explicit operator bool() const { return number >= 0; }

  int number;
};

/// Addresses that a name stands for.
class Addresses {
public:
  Addresses() = default;
  Addresses(const Addresses &) = delete;
  Addresses &operator=(const Addresses &) = delete;
  ~Addresses() {
    if (first)
      freeaddrinfo(first);
  }

  Status find(const SocketExchange &exchange) {
    addrinfo hints = {};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    int error =
        getaddrinfo(exchange.host.c_str(),
                    std::to_string(exchange.port).c_str(), &hints, &first);
    if (error != 0)
      return invalidArgument(
          "the host '" + exchange.host +
          "' of rank 0 is not known: " + gai_strerror(error) +
          "; look at MOERT_BOOTSTRAP_ADDRESS or "
          "MASTER_ADDR");
    return Status::ok();
  }

  addrinfo *first = nullptr;
};

} // namespace

/// HMAC (RFC 2104) with SHA-256; a secret is shorter than a block.
static Sha256Digest hmac(const Secret &secret, const std::string &text) {
  std::string inner(64, '\x36'), outer(64, '\x5c');
  for (size_t i = 0; i < secret.size(); ++i) {
    inner[i] = static_cast<char>(inner[i] ^ secret[i]);
    outer[i] = static_cast<char>(outer[i] ^ secret[i]);
  }
  inner += text;
  Sha256Digest digest = sha256(inner.data(), inner.size());
  outer.append(reinterpret_cast<const char *>(digest.data()), digest.size());
  return sha256(outer.data(), outer.size());
}

/// In a time that does not depend on where they differ.
static bool isEqual(const Sha256Digest &left, const Sha256Digest &right) {
  uint8_t difference = 0;
  for (size_t i = 0; i < left.size(); ++i)
    difference |= left[i] ^ right[i];
  return difference == 0;
}

template <typename T>
static void append(std::string &text, const T &bytes) {
  text.append(reinterpret_cast<const char *>(&bytes), sizeof(bytes));
}

static Sha256Digest proofOf(const Secret &secret, const Challenge &challenge,
                            const Hello &hello) {
  std::string text = "moert rank";
  append(text, challenge.nonce);
  append(text, hello.nonce);
  append(text, hello.rank);
  append(text, hello.numRanks);
  return hmac(secret, text);
}

static Sha256Digest proofOf(const Secret &secret, const Hello &hello,
                            const Answer &answer) {
  std::string text = "moert id";
  append(text, hello.nonce);
  append(text, answer.verdict);
  append(text, answer.id);
  return hmac(secret, text);
}

static Status draw(std::array<uint8_t, 32> &nonce) {
  if (getrandom(nonce.data(), nonce.size(), 0) != ssize_t(nonce.size()))
    return unavailable("the system gives no random bytes: " +
                       std::string(strerror(errno)));
  return Status::ok();
}

static void store(uint8_t (&bytes)[4], int64_t value) {
  for (size_t i = 0; i < sizeof(bytes); ++i)
    bytes[i] = static_cast<uint8_t>(value >> (8 * i));
}

static int64_t load(const uint8_t (&bytes)[4]) {
  int64_t value = 0;
  for (size_t i = 0; i < sizeof(bytes); ++i)
    value |= int64_t(bytes[i]) << (8 * i);
  return value;
}

/// Whether `events` came at the socket before the time.
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

/// Sends or receives all of an object; whether that was done in time.
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

static Clock::time_point deadline(double limitSeconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(
             std::chrono::duration<double>(std::min(limitSeconds, 1e9)));
}

static std::string addressText(const SocketExchange &exchange) {
  return exchange.host + ":" + std::to_string(exchange.port);
}

//===----------------------------------------------------------------------===//
// Rank 0
//===----------------------------------------------------------------------===//

static Result<int> startListening(const SocketExchange &exchange) {
  Addresses addresses;
  MOERT_CHECK(addresses.find(exchange));
  int error = 0;
  for (addrinfo *entry = addresses.first; entry; entry = entry->ai_next) {
    Socket made(socket(entry->ai_family,
                       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int yes = 1;
    if (made &&
        setsockopt(made.number, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) ==
            0 &&
        bind(made.number, entry->ai_addr, entry->ai_addrlen) == 0 &&
        listen(made.number, SOMAXCONN) == 0) {
      int number = made.number;
      made.number = -1;
      return number;
    }
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

/// Serves one that has connected. Answers its rank where it has the id, -1
/// where it is none of ours.
static int64_t serve(int number, const SocketExchange &exchange,
                     const RankEnvironment &environment, const NcclUniqueId &id,
                     const std::vector<bool> &served, Clock::time_point end) {
  Challenge challenge;
  Hello hello;
  if (!draw(challenge.nonce) || !sendAll(number, challenge, end) ||
      !receiveAll(number, hello, end))
    return -1;
  Answer answer;
  int64_t rank = load(hello.rank);
  if (!isEqual(hello.proof, proofOf(exchange.secret, challenge, hello))) {
    // Who does not know the secret is told no more than that.
    answer.verdict = Verdict::WrongSecret;
    (void)sendAll(number, answer, end);
    return -1;
  }
  if (load(hello.numRanks) != environment.numRanks || rank < 1 ||
      rank >= environment.numRanks)
    answer.verdict = Verdict::WrongRanks;
  else if (served[static_cast<size_t>(rank)])
    answer.verdict = Verdict::RankTaken;
  else
    answer.id = id;
  answer.proof = proofOf(exchange.secret, hello, answer);
  bool isSent = sendAll(number, answer, end);
  return isSent && answer.verdict == Verdict::Welcome ? rank : -1;
}

static Result<NcclUniqueId> serveAll(const SocketExchange &exchange,
                                     const RankEnvironment &environment,
                                     double limitSeconds,
                                     const MakeUniqueId &makeId) {
  Clock::time_point end = deadline(limitSeconds);
  Result<int> listening = startListening(exchange);
  if (!listening)
    return listening.status();
  Socket listener(*listening);
  Result<NcclUniqueId> id = makeId();
  if (!id)
    return id;
  std::vector<bool> served(static_cast<size_t>(environment.numRanks));
  served[0] = true;
  int64_t numTurnedAway = 0;
  while (std::find(served.begin(), served.end(), false) != served.end()) {
    if (!waitFor(listener.number, POLLIN, end)) {
      std::vector<int64_t> missing;
      for (size_t rank = 0; rank < served.size(); ++rank)
        if (!served[rank])
          missing.push_back(int64_t(rank));
      return unavailable(
          ranksText(missing) + " did not come to " + addressText(exchange) +
          " within " + secondsText(limitSeconds) +
          (numTurnedAway > 0
               ? ", and " + std::to_string(numTurnedAway) +
                     " connections were turned away (another secret, rank or "
                     "number of ranks)"
               : "") +
          "; look for an earlier error there");
    }
    Socket peer(accept4(listener.number, nullptr, nullptr,
                        SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!peer)
      continue;
    int64_t rank =
        serve(peer.number, exchange, environment, *id, served,
              std::min(end, Clock::now() + Clock::duration(kPeerLimit)));
    if (rank >= 0)
      served[static_cast<size_t>(rank)] = true;
    else
      ++numTurnedAway;
  }
  return id;
}

//===----------------------------------------------------------------------===//
// Other ranks
//===----------------------------------------------------------------------===//

/// A socket that is connected, or none: rank 0 may not listen yet.
static Socket tryConnect(const Addresses &addresses, Clock::time_point end,
                         int &error) {
  for (addrinfo *entry = addresses.first; entry; entry = entry->ai_next) {
    Socket made(socket(entry->ai_family,
                       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made) {
      error = errno;
      continue;
    }
    if (connect(made.number, entry->ai_addr, entry->ai_addrlen) == 0)
      return made;
    error = errno;
    if (error != EINPROGRESS)
      continue;
    error = ETIMEDOUT;
    socklen_t size = sizeof(error);
    if (waitFor(made.number, POLLOUT, end) &&
        getsockopt(made.number, SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
        error == 0)
      return made;
  }
  return Socket();
}

static Status checkVerdict(const std::string &where, Verdict verdict,
                           const RankEnvironment &environment) {
  std::string rank = "rank " + std::to_string(environment.rank);
  switch (verdict) {
  case Verdict::Welcome:
    return Status::ok();
  case Verdict::WrongSecret:
    return invalidArgument(where + ": rank 0 has another secret than " + rank +
                           "; set MOERT_BOOTSTRAP_SECRET alike on all ranks");
  case Verdict::WrongRanks:
    return invalidArgument(where +
                           ": rank 0 has another number of ranks than "
                           "the " +
                           std::to_string(environment.numRanks) + " of " +
                           rank +
                           "; set WORLD_SIZE alike on all ranks, and RANK to "
                           "one of them");
  case Verdict::RankTaken:
    return invalidArgument(where + ": " + rank +
                           " has come before; give each process a RANK of its "
                           "own");
  }
  return invalidArgument(where + ": what answers is not rank 0; look at the "
                                 "port");
}

/// The id from rank 0; whether there was an answer.
static Result<bool> ask(int number, const SocketExchange &exchange,
                        const RankEnvironment &environment,
                        Clock::time_point end, NcclUniqueId &id) {
  std::string where = addressText(exchange);
  Challenge challenge;
  if (!receiveAll(number, challenge, end))
    return false;
  if (memcmp(challenge.magic, Challenge().magic, sizeof(challenge.magic)) != 0)
    return invalidArgument(where + ": what answers is not rank 0; look at the "
                                   "port");
  Hello hello;
  store(hello.rank, environment.rank);
  store(hello.numRanks, environment.numRanks);
  MOERT_CHECK(draw(hello.nonce));
  hello.proof = proofOf(exchange.secret, challenge, hello);
  Answer answer;
  if (!sendAll(number, hello, end) || !receiveAll(number, answer, end))
    return false;
  bool isProven =
      isEqual(answer.proof, proofOf(exchange.secret, hello, answer));
  if (!isProven && answer.verdict != Verdict::WrongSecret)
    return invalidArgument(where + ": what answers does not know the secret; "
                                   "look at the port");
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
    if (Socket made = tryConnect(addresses, end, error)) {
      NcclUniqueId id;
      Result<bool> isAnswered =
          ask(made.number, exchange, environment, end, id);
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
                     "; look for an earlier error of rank 0, and see that all "
                     "ranks have the same address");
}

Result<NcclUniqueId> exchangeBySocket(const SocketExchange &exchange,
                                      const RankEnvironment &environment,
                                      double limitSeconds,
                                      const MakeUniqueId &makeId) {
  MOERT_CHECK(checkLimit(limitSeconds));
  return environment.rank == 0
             ? serveAll(exchange, environment, limitSeconds, makeId)
             : askRank0(exchange, environment, limitSeconds);
}

} // namespace moert
