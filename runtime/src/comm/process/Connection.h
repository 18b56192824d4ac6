//===- Connection.h - a connection to another process -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_COMM_PROCESS_CONNECTION_H
#define MOERT_SRC_COMM_PROCESS_CONNECTION_H

#include "Message.h"

#include <deque>

namespace moert {

struct ReceivedMessage {
  MessageKind kind = MessageKind::Come;
  std::string bytes;
};

/// A connected, non-blocking stream socket. Owns the socket.
class Connection {
public:
  explicit Connection(int socket);
  ~Connection();
  Connection(const Connection &) = delete;
  Connection &operator=(const Connection &) = delete;

  int socket() const { return descriptor; }

  void queue(MessageKind kind, std::string bytes);
  /// The memory is read until it has been sent.
  void queueRows(const char *rows, size_t bytes);
  /// Removes messages whose sending has not begun.
  void dropQueued();
  bool hasQueued() const { return !out.empty(); }
  /// Sends what the socket takes; nothing after the peer is gone. Returns
  /// whether anything was sent.
  bool write();

  /// Reads the available bytes. Returns whether there were any.
  bool read();
  /// The next complete message, valid until pop().
  const ReceivedMessage *front();
  void pop() { next.reset(); }
  /// The peer process has ended or closed its end, and all of its messages have
  /// been taken.
  bool isAtEnd() const { return hasEnded && !hasWhole(); }
  /// Invalid data was received.
  bool isBroken() const { return broken; }

  /// Signals the end to the peer.
  void shutDown();

private:
  /// An outgoing message: a head, then bytes that it owns or the caller's.
  struct Queued {
    MessageHead head;
    std::string own;
    const char *rows = nullptr;
    size_t sent = 0;
  };
  bool hasWhole() const;

  const int descriptor;
  std::deque<Queued> out;
  bool isDeaf = false;
  /// Received bytes, unread from `begin` on.
  std::string in;
  size_t begin = 0;
  std::optional<ReceivedMessage> next;
  bool hasEnded = false, broken = false;
};

} // namespace moert

#endif // MOERT_SRC_COMM_PROCESS_CONNECTION_H
