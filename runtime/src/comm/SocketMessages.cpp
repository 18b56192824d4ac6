//===- SocketMessages.cpp - messages of the socket exchange -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SocketMessages.h"

#include <algorithm>

namespace moert::socket_exchange {

/// HMAC (RFC 2104) with SHA-256; the secret is shorter than a block.
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

bool isEqual(const Sha256Digest &left, const Sha256Digest &right) {
  uint8_t difference = 0;
  for (size_t i = 0; i < left.size(); ++i)
    difference |= left[i] ^ right[i];
  return difference == 0;
}

template <typename T>
static void append(std::string &text, const T &bytes) {
  text.append(reinterpret_cast<const char *>(&bytes), sizeof(bytes));
}

Sha256Digest proofOf(const Secret &secret, const Challenge &challenge,
                     const Hello &hello) {
  std::string text = "moert rank";
  append(text, challenge.nonce);
  append(text, hello.nonce);
  append(text, hello.rank);
  append(text, hello.numRanks);
  return hmac(secret, text);
}

Sha256Digest proofOf(const Secret &secret, const Hello &hello,
                     const Answer &answer) {
  std::string text = "moert id";
  append(text, hello.nonce);
  append(text, answer.verdict);
  append(text, answer.id);
  return hmac(secret, text);
}

void storeNumber(uint8_t (&bytes)[4], int64_t value) {
  for (size_t i = 0; i < sizeof(bytes); ++i)
    bytes[i] = static_cast<uint8_t>(value >> (8 * i));
}

int64_t loadNumber(const uint8_t (&bytes)[4]) {
  int64_t value = 0;
  for (size_t i = 0; i < sizeof(bytes); ++i)
    value |= int64_t(bytes[i]) << (8 * i);
  return value;
}

Status Addresses::find(const SocketExchange &exchange) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  int error =
      getaddrinfo(exchange.host.c_str(), std::to_string(exchange.port).c_str(),
                  &hints, &first);
  if (error != 0)
    return invalidArgument(
        "the host '" + exchange.host + "' of rank 0 cannot be resolved: " +
        gai_strerror(error) + "; check MOERT_BOOTSTRAP_ADDRESS or MASTER_ADDR");
  return Status::ok();
}

std::string addressText(const SocketExchange &exchange) {
  return exchange.host + ":" + std::to_string(exchange.port);
}

Clock::time_point deadline(double limitSeconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(
             std::chrono::duration<double>(std::min(limitSeconds, 1e9)));
}

} // namespace moert::socket_exchange
