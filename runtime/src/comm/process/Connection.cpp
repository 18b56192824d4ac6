//===- Connection.cpp - a connection to another process ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace moert {

Connection::Connection(int socket) : descriptor(socket) {
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

Connection::~Connection() { close(descriptor); }

void Connection::queue(MessageKind kind, std::string bytes) {
  Queued queued;
  queued.head.kind = kind;
  queued.head.bytes = static_cast<uint32_t>(bytes.size());
  queued.own = std::move(bytes);
  out.push_back(std::move(queued));
}

void Connection::queueRows(const char *rows, size_t bytes) {
  for (size_t at = 0; at < bytes; at += MessageHead::kRowsBytes) {
    Queued queued;
    queued.head.kind = MessageKind::Rows;
    queued.head.bytes = static_cast<uint32_t>(
        std::min<size_t>(bytes - at, MessageHead::kRowsBytes));
    queued.rows = rows + at;
    out.push_back(std::move(queued));
  }
}

void Connection::dropQueued() {
  if (!out.empty())
    out.erase(out.begin() + (out.front().sent > 0 ? 1 : 0), out.end());
}

bool Connection::write() {
  bool hasSent = false;
  while (!out.empty() && !isDeaf) {
    Queued &queued = out.front();
    const char *bytes = reinterpret_cast<const char *>(&queued.head);
    size_t at = queued.sent, end = sizeof(queued.head);
    if (at >= end) {
      bytes = queued.rows ? queued.rows : queued.own.data();
      at -= end;
      end = queued.head.bytes;
    }
    if (at < end) {
      ssize_t sent = send(descriptor, bytes + at, end - at, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR)
        continue;
      if (sent < 0) {
        // The peer no longer reads; its end is detected on this side's read.
        isDeaf = errno != EAGAIN && errno != EWOULDBLOCK;
        break;
      }
      queued.sent += static_cast<size_t>(sent);
      hasSent = true;
    }
    if (queued.sent == sizeof(queued.head) + queued.head.bytes)
      out.pop_front();
  }
  if (isDeaf)
    out.clear();
  return hasSent;
}

bool Connection::read() {
  constexpr size_t kChunk = 1 << 16, kMost = 1 << 22;
  bool hasRead = false;
  in.erase(0, begin);
  begin = 0;
  while (!hasEnded && in.size() < kMost) {
    size_t before = in.size();
    in.resize(before + kChunk);
    ssize_t count = recv(descriptor, in.data() + before, kChunk, 0);
    int error = errno;
    in.resize(before + (count > 0 ? static_cast<size_t>(count) : 0));
    if (count > 0) {
      hasRead = true;
      continue;
    }
    if (count < 0 && error == EINTR)
      continue;
    if (count < 0 && (error == EAGAIN || error == EWOULDBLOCK))
      break;
    hasEnded = hasRead = true;
  }
  return hasRead;
}

bool Connection::hasWhole() const {
  MessageHead head;
  if (next)
    return true;
  if (in.size() - begin < sizeof(head))
    return false;
  memcpy(&head, in.data() + begin, sizeof(head));
  return in.size() - begin - sizeof(head) >= head.bytes;
}

const ReceivedMessage *Connection::front() {
  if (next)
    return &*next;
  MessageHead head;
  if (in.size() - begin < sizeof(head))
    return nullptr;
  memcpy(&head, in.data() + begin, sizeof(head));
  broken = broken || head.magic != MessageHead::kMagic ||
           head.bytes > MessageHead::kMostBytes;
  if (broken || !hasWhole())
    return nullptr;
  next =
      ReceivedMessage{head.kind, in.substr(begin + sizeof(head), head.bytes)};
  begin += sizeof(head) + head.bytes;
  return &*next;
}

void Connection::shutDown() { shutdown(descriptor, SHUT_WR); }

} // namespace moert
