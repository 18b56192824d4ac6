//===- Yardstick.cpp - PyTorch in a separate process ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Yardstick.h"

#include "../TryStatus.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Program.h"

#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace moec;
using namespace moec::bench;
using moert::Result;
using moert::Status;

extern char **environ;

/// Timeout of one answer: loading PyTorch takes long.
static constexpr int kPatienceMilliseconds = 120000;

Result<std::unique_ptr<Yardstick>> Yardstick::start(const std::string &python,
                                                    const std::string &script,
                                                    int ordinal) {
  llvm::ErrorOr<std::string> program = llvm::sys::findProgramByName(python);
  if (!program)
    return moert::unavailable("there is no '" + python + "'");
  int down[2], up[2];
  if (pipe2(down, O_CLOEXEC) != 0)
    return moert::unavailable("no pipe");
  if (pipe2(up, O_CLOEXEC) != 0) {
    close(down[0]);
    close(down[1]);
    return moert::unavailable("no pipe");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, down[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, up[1], STDOUT_FILENO);
  std::string number = std::to_string(ordinal), name = *program, path = script;
  char *arguments[] = {name.data(), path.data(), number.data(), nullptr};
  pid_t child = -1;
  int failed =
      posix_spawn(&child, name.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(down[0]);
  close(up[1]);
  if (failed != 0) {
    close(down[1]);
    close(up[0]);
    return moert::unavailable("'" + name + "' cannot be started");
  }
  // A write to a process that has ended then returns an error, instead of
  // ending this process.
  std::signal(SIGPIPE, SIG_IGN);
  std::unique_ptr<Yardstick> yardstick(new Yardstick(child, down[1], up[0]));
  MOEC_TRY_ASSIGN(yardstick->greeting, yardstick->readAnswer());
  return yardstick;
}

Yardstick::~Yardstick() {
  close(to);
  close(from);
  // The process would end at the end of its input, but what it still does is of
  // no use.
  kill(child, SIGTERM);
  waitpid(child, nullptr, 0);
}

Result<llvm::json::Object> Yardstick::readAnswer() {
  size_t end;
  while ((end = received.find('\n')) == std::string::npos) {
    pollfd waiting = {from, POLLIN, 0};
    int ready = poll(&waiting, 1, kPatienceMilliseconds);
    if (ready == 0)
      return moert::unavailable("the yardstick does not answer");
    char text[4096];
    ssize_t count = ready > 0 ? read(from, text, sizeof(text)) : -1;
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return moert::unavailable("the yardstick has ended");
    received.append(text, static_cast<size_t>(count));
  }
  llvm::Expected<llvm::json::Value> value =
      llvm::json::parse(llvm::StringRef(received).take_front(end));
  received.erase(0, end + 1);
  if (!value)
    return moert::unavailable("the yardstick's answer: " +
                              llvm::toString(value.takeError()));
  llvm::json::Object *object = value->getAsObject();
  if (!object)
    return moert::unavailable("the yardstick's answer is no object");
  if (std::optional<llvm::StringRef> error = object->getString("error"))
    return moert::unavailable("the yardstick: " + error->str());
  return std::move(*object);
}

Result<llvm::json::Object> Yardstick::ask(llvm::json::Object request) {
  std::string line =
      llvm::formatv("{0}\n", llvm::json::Value(std::move(request)));
  for (size_t sent = 0; sent < line.size();) {
    ssize_t count = write(to, line.data() + sent, line.size() - sent);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return moert::unavailable("the yardstick has ended");
    sent += static_cast<size_t>(count);
  }
  return readAnswer();
}

Result<double> Yardstick::askNumber(llvm::json::Object request,
                                    llvm::StringRef key) {
  llvm::json::Object answer;
  MOEC_TRY_ASSIGN(answer, ask(std::move(request)));
  std::optional<double> number = answer.getNumber(key);
  if (!number)
    return moert::unavailable("the yardstick's answer has no '" + key.str() +
                              "'");
  return *number;
}
