// Calls what cmake/OldGlibc.cpp defines, as LLVM, libstdc++ and libgcc do. A
// function returns 0 or the line of the first difference from what it expects.

#include "../../../cmake/OldGlibc.cpp"

#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>

#define EXPECT(condition)                                                      \
  if (!(condition))                                                            \
    return __LINE__;

extern "C" {

double moert_exp(double x) { return exp(x); }
double moert_exp2(double x) { return exp2(x); }
double moert_log(double x) { return log(x); }
double moert_log2(double x) { return log2(x); }
double moert_pow(double x, double y) { return pow(x, y); }
double moert_hypot(double x, double y) { return hypot(x, y); }

// libc's frames of qsort lie between throw and catch.
int moert_exceptions() {
  auto thrower = [](const void *, const void *) -> int {
    throw std::runtime_error("thrown");
  };
  int numbers[] = {2, 1};
  try {
    qsort(numbers, 2, sizeof(int), thrower);
  } catch (const std::runtime_error &error) {
    return strcmp(error.what(), "thrown") == 0 ? 0 : __LINE__;
  }
  return __LINE__;
}

int moert_files(const char *folder) {
  std::string file = std::string(folder) + "/file", link = file + "-link";
  int descriptor = open(file.c_str(), O_CREAT | O_WRONLY, 0600);
  EXPECT(write(descriptor, "12345", 5) == 5);
  EXPECT(symlink("file", link.c_str()) == 0);
  struct stat found;
  EXPECT(stat(link.c_str(), &found) == 0 && found.st_size == 5);
  EXPECT(fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode));
  EXPECT(lstat(link.c_str(), &found) == 0 && S_ISLNK(found.st_mode));
  int directory = open(folder, O_RDONLY);
  EXPECT(fstatat(directory, "file", &found, 0) == 0 && found.st_size == 5);
  struct stat64 wide;
  EXPECT(stat64(link.c_str(), &wide) == 0 && wide.st_size == 5);
  EXPECT(fstat64(descriptor, &wide) == 0 && S_ISREG(wide.st_mode));
  EXPECT(lstat64(link.c_str(), &wide) == 0 && S_ISLNK(wide.st_mode));
  std::string pipe = file + "-pipe";
  EXPECT(mknod(pipe.c_str(), S_IFIFO | 0600, 0) == 0);
  EXPECT(stat(pipe.c_str(), &found) == 0 && S_ISFIFO(found.st_mode));
  EXPECT(stat("/no/such/file", &found) == -1 && errno == ENOENT);
  close(directory);
  close(descriptor);
  return 0;
}

int moert_memory_and_random() {
  void *volatile block = malloc(100000000);
  struct mallinfo2 info = mallinfo2();
  free(block);
  EXPECT(info.hblkhd >= 100000000 && info.uordblks > 0);
  std::set<uint32_t> numbers;
  for (int i = 0; i < 100; ++i)
    numbers.insert(arc4random());
  EXPECT(numbers.size() > 98);
  return 0;
}

int moert_threads() {
  std::once_flag once;
  std::shared_mutex lock;
  std::mutex mutex;
  int calls = 0;
  std::string name(16, '\0');
  auto run = [&] {
    std::call_once(once, [&] { ++calls; });
    std::shared_lock guard(lock);
    pthread_setname_np(pthread_self(), "probe");
    pthread_getname_np(pthread_self(), name.data(), name.size());
  };
  std::thread(run).join();
  std::thread(run).join();
  std::unique_lock(lock).unlock();
  EXPECT(calls == 1 && strcmp(name.c_str(), "probe") == 0);
  EXPECT(mutex.try_lock());
  mutex.unlock();
  sigset_t mask;
  EXPECT(pthread_sigmask(SIG_BLOCK, nullptr, &mask) == 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  EXPECT(pthread_attr_setstacksize(&attributes, 1 << 20) == 0);
  pthread_t thread;
  EXPECT(pthread_create(
             &thread, &attributes, [](void *x) { return x; }, nullptr) == 0);
  EXPECT(pthread_detach(thread) == 0);
  return 0;
}

int moert_waits() {
  using Clock = std::chrono::steady_clock;
  constexpr auto limit = std::chrono::milliseconds(30);
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock<std::mutex> lock(mutex);
  auto start = Clock::now();
  EXPECT(changed.wait_for(lock, limit) == std::cv_status::timeout);
  EXPECT(Clock::now() - start >= limit);
  bool isSet = false;
  std::thread setter([&] {
    std::lock_guard<std::mutex> guard(mutex);
    isSet = true;
    changed.notify_one();
  });
  bool came =
      changed.wait_for(lock, std::chrono::seconds(20), [&] { return isSet; });
  lock.unlock();
  setter.join();
  EXPECT(came);
  // The wait of glibc before 2.30. The nanoseconds go over a second either way.
  for (long nanoseconds : {1L, 999999999L}) {
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
    timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &now);
    end = {now.tv_sec + (nanoseconds == 1), nanoseconds};
    pthread_mutex_lock(&plain);
    EXPECT(waitByWallClock(&condition, &plain, CLOCK_MONOTONIC, &end) ==
           ETIMEDOUT);
    pthread_mutex_unlock(&plain);
    clock_gettime(CLOCK_MONOTONIC, &now);
    double late = double(now.tv_sec - end.tv_sec) +
                  double(now.tv_nsec - end.tv_nsec) * 1e-9;
    EXPECT(late > -0.001 && late < 0.9);
  }
  return 0;
}

int moert_libraries() {
  void *math = dlopen("libm.so.6", RTLD_NOW);
  EXPECT(math && dlsym(math, "cos"));
  EXPECT(!dlsym(math, "no_such_function") && dlerror());
  EXPECT(dlclose(math) == 0);
  Dl_info info;
  EXPECT(dladdr(reinterpret_cast<void *>(moert_libraries), &info));
  return strstr(info.dli_fname, "libmoert.so.1") ? 0 : __LINE__;
}
}
