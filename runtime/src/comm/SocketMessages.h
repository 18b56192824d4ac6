//===- SocketMessages.h - messages of the socket exchange -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Three messages of fixed size: rank 0 sends a Challenge, the other rank its
// Hello, rank 0 its Answer. Each side proves knowledge of the secret by an
// HMAC-SHA-256 over both nonces, so the secret cannot be learned by listening.
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_COMM_SOCKETMESSAGES_H
#define MOERT_SRC_COMM_SOCKETMESSAGES_H

#include "../support/Sha256.h"
#include "Bootstrap.h"

#include <chrono>

#include <netdb.h>

namespace moert::socket_exchange {

using Clock = std::chrono::steady_clock;
using Secret = std::array<uint8_t, 32>;

struct Challenge {
  char magic[8] = {'m', 'o', 'e', 'r', 't', 's', 'k', '1'};
  /// Rank 0's nonce for this connection.
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

Sha256Digest proofOf(const Secret &secret, const Challenge &challenge,
                     const Hello &hello);
Sha256Digest proofOf(const Secret &secret, const Hello &hello,
                     const Answer &answer);
/// Compares in constant time.
bool isEqual(const Sha256Digest &left, const Sha256Digest &right);

void storeNumber(uint8_t (&bytes)[4], int64_t value);
int64_t loadNumber(const uint8_t (&bytes)[4]);

/// The addresses of a host name.
class Addresses {
public:
  Addresses() = default;
  Addresses(const Addresses &) = delete;
  Addresses &operator=(const Addresses &) = delete;
  ~Addresses() {
    if (first)
      freeaddrinfo(first);
  }

  Status find(const SocketExchange &exchange);

  addrinfo *first = nullptr;
};

std::string addressText(const SocketExchange &exchange);
Clock::time_point deadline(double limitSeconds);

/// Rank 0: gives the id to all other ranks.
Result<NcclUniqueId> serveRanks(const SocketExchange &exchange,
                                const RankEnvironment &environment,
                                double limitSeconds,
                                const MakeUniqueId &makeId);

} // namespace moert::socket_exchange

#endif // MOERT_SRC_COMM_SOCKETMESSAGES_H
