/* What watches over an RPC session on the machine that it runs on; TVM's runtime is all it needs.
 *
 * TVM's RPC server forks a process for every session, and stops serving for good when that process
 * ends in any way but its own. So the first thing that a session is asked for is to fork once more:
 * the child goes on serving, and what candidates do they do to the child. The parent keeps the
 * process that the server knows, watches the child's time and memory from outside, tells the client
 * over the session's own socket what became of it, and always ends with status 0.
 *
 * What the client gets is an error whose text has "[collage guard] <status>: <reason>".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collage_ffi.h"

static double number_of(const TVMFFIAny* arg) {
  return arg->type_index == kTVMFFIInt ? (double)arg->v_int64 : arg->v_float64;
}

#include "gpu_samples.h"

enum { POLL_MS = 20, MOST_FILES = 4096, MOST_BYTES = 1 << 20 };

/* Shared by both processes; times are those of the monotonic clock, in nanoseconds. */
typedef struct {
  _Atomic int64_t ends_at;     /* When what runs has had its time, or one of the below. */
  _Atomic int64_t limit_ns;    /* What it has all in all, for the message. */
  _Atomic int64_t most_bytes;  /* What the child may hold while a job is under way. */
  _Atomic int64_t limit_bytes; /* What the job may add, for the message. */
  _Atomic int64_t idle_since;
} Watch;

enum { IDLE = 0, UNTIMED = -1 }; /* No job is under way; one is, but the client's turn it is. */

static Watch* watch;

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Pages of a process, by the column of proc(5)'s statm: 1 are resident, 5 are data. */
static int64_t memory_bytes(pid_t pid, int column) {
  char path[64], line[256];
  snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
  FILE* file = fopen(path, "r");
  int64_t pages = 0;
  if (file != NULL) {
    char* at = fgets(line, sizeof(line), file);
    for (int i = 0; at != NULL && i <= column; ++i) pages = strtoll(at, &at, 10);
    fclose(file);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

static int port_of(int fd) {
  struct sockaddr_storage name;
  socklen_t size = sizeof(name);
  if (getsockname(fd, (struct sockaddr*)&name, &size) != 0) return -1;
  if (name.ss_family == AF_INET) return ntohs(((struct sockaddr_in*)&name)->sin_port);
  if (name.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6*)&name)->sin6_port);
  return -1;
}

/* The socket of this session, or -1. A forked process has the server's listening socket and its
 * line to the tracker, too: the session came in at the port that is listened to. */
static int session_socket(void) {
  int listening = -1, found = -1, count = 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (int fd = 0; fd < MOST_FILES; ++fd) {
      int accepts = 0;
      socklen_t size = sizeof(accepts);
      int port = port_of(fd);
      if (port < 0 || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) != 0) continue;
      if (pass == 0) {
        if (accepts) listening = port;
      } else if (!accepts && (listening < 0 || port == listening)) {
        found = fd;
        ++count;
      }
    }
  }
  return count == 1 ? found : -1;
}

/* Sends the client an error in place of the answer that it waits for, and ends. */
static void give_up(int socket, const char* status, const char* reason) {
  char words[512];
  snprintf(words, sizeof(words), "[collage guard] %s: %s", status, reason);
  const TVMFFIByteArray name = {"rpc.ReturnException", strlen("rpc.ReturnException")};
  TVMFFIObjectHandle function = NULL;
  if (TVMFFIFunctionGetGlobal(&name, &function) == 0 && function != NULL) {
    TVMFFIAny args[2], result;
    memset(args, 0, sizeof(args));
    memset(&result, 0, sizeof(result));
    args[0].type_index = kTVMFFIInt;
    args[0].v_int64 = socket;
    args[1].type_index = kTVMFFIRawStr;
    args[1].v_c_str = words;
    TVMFFIFunctionCall(function, args, 2, &result);
  }
  _exit(0);
}

static const char* signal_name(int number) {
  switch (number) {
    case SIGSEGV: return "SIGSEGV";
    case SIGABRT: return "SIGABRT";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGILL: return "SIGILL";
    case SIGKILL: return "SIGKILL";
    case SIGTERM: return "SIGTERM";
    default: return "a signal";
  }
}

static void report_end(int socket, int status) {
  char reason[256];
  if (WIFEXITED(status)) {
    if (WEXITSTATUS(status) == 0) _exit(0); /* The client has gone. */
    snprintf(reason, sizeof(reason), "ended by itself with exit status %d", WEXITSTATUS(status));
    give_up(socket, "crashed", reason);
  }
  int number = WTERMSIG(status);
  snprintf(reason, sizeof(reason), "died of %s (%s)", signal_name(number), strsignal(number));
  /* Whoever sends these is no candidate: the system, short of memory, or a person. */
  int from_outside = number == SIGKILL || number == SIGTERM || number == SIGINT || number == SIGHUP;
  give_up(socket, from_outside ? "killed" : "crashed", reason);
}

static void end_child(pid_t child) {
  kill(child, SIGKILL);
  while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
  }
}

/* The life of the parent. */
static void watch_child(pid_t child, int socket, int64_t idle_ns) {
  char reason[256];
  for (;;) {
    struct pollfd client = {socket, POLLRDHUP, 0};
    poll(&client, 1, POLL_MS);
    int status = 0;
    pid_t ended = waitpid(child, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (ended == child && (WIFSTOPPED(status) || WIFCONTINUED(status))) {
      end_child(child);
      give_up(socket, "killed", "was stopped by somebody");
    }
    if (ended == child) report_end(socket, status);
    if (client.revents & (POLLRDHUP | POLLHUP | POLLERR)) {
      end_child(child);
      _exit(0);
    }
    int64_t now = now_ns(), ends_at = atomic_load(&watch->ends_at);
    if (ends_at == IDLE) {
      if (now - atomic_load(&watch->idle_since) > idle_ns) {
        end_child(child);
        _exit(0);
      }
    } else if (ends_at != UNTIMED && now > ends_at) {
      end_child(child);
      snprintf(reason, sizeof(reason), "gave no answer within %g s",
               (double)atomic_load(&watch->limit_ns) * 1e-9);
      give_up(socket, "timed_out", reason);
    } else if (memory_bytes(child, 1) > atomic_load(&watch->most_bytes)) {
      end_child(child);
      snprintf(reason, sizeof(reason), "took more than %lld MiB of memory",
               (long long)(atomic_load(&watch->limit_bytes) >> 20));
      give_up(socket, "out_of_memory", reason);
    }
  }
}

/* The text of an argument, in a buffer of its own; NULL when it is none or too long. */
static const char* text_of(const TVMFFIAny* arg, char* buffer, size_t size) {
  const char* data = NULL;
  size_t length = 0;
  if (arg->type_index == kTVMFFIRawStr) {
    data = arg->v_c_str;
    length = strlen(data);
  } else if (arg->type_index == kTVMFFISmallStr) {
    data = arg->v_bytes;
    length = arg->small_str_len;
  } else if (arg->type_index == kTVMFFIStr) {
    const TVMFFIByteArray* bytes =
        (const TVMFFIByteArray*)((const char*)arg->v_obj + sizeof(TVMFFIObject));
    data = bytes->data;
    length = bytes->size;
  }
  if (data == NULL || length >= size) return NULL;
  memcpy(buffer, data, length);
  buffer[length] = '\0';
  return buffer;
}

static int return_text(const char* data, size_t size, TVMFFIAny* result) {
  const TVMFFIByteArray bytes = {data, size};
  return TVMFFIStringFromByteArray(&bytes, result);
}

/* start(idle seconds, bytes of data that the session may allocate; 0 for no limit) */
COLLAGE_EXPORT(collage_guard_start) {
  COLLAGE_CHECK_ARGS(2);
  int64_t idle_ns = (int64_t)(number_of(&args[0]) * 1e9);
  int64_t data_bytes = (int64_t)number_of(&args[1]);
  int socket = session_socket();
  if (socket < 0) return collage_fail("RuntimeError", "cannot tell which socket is the session's");
  watch = mmap(NULL, sizeof(Watch), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (watch == MAP_FAILED) return collage_fail("RuntimeError", "mmap: %s", strerror(errno));
  atomic_store(&watch->idle_since, now_ns());
  pid_t parent = getpid(), child = fork();
  if (child < 0) return collage_fail("RuntimeError", "fork: %s", strerror(errno));
  if (child > 0) watch_child(child, socket, idle_ns);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  if (data_bytes > 0) {
    rlim_t most = (rlim_t)(memory_bytes(getpid(), 5) + data_bytes);
    const struct rlimit limit = {most, most};
    setrlimit(RLIMIT_DATA, &limit);
  }
  return 0;
}

/* begin(seconds, bytes): a job is under way, which may run so long and add so much memory. */
COLLAGE_EXPORT(collage_guard_begin) {
  COLLAGE_CHECK_ARGS(2);
  int64_t limit_bytes = (int64_t)number_of(&args[1]);
  atomic_store(&watch->limit_ns, (int64_t)(number_of(&args[0]) * 1e9));
  atomic_store(&watch->limit_bytes, limit_bytes);
  atomic_store(&watch->most_bytes, memory_bytes(getpid(), 1) + limit_bytes);
  atomic_store(&watch->ends_at, UNTIMED);
  return 0;
}

/* run(seconds): something of it runs from now on, for so long at the most. */
COLLAGE_EXPORT(collage_guard_run) {
  COLLAGE_CHECK_ARGS(1);
  atomic_store(&watch->ends_at, now_ns() + (int64_t)(number_of(&args[0]) * 1e9));
  return 0;
}

/* rest(): nothing of it runs; what the network takes is not the job's. */
COLLAGE_EXPORT(collage_guard_rest) {
  COLLAGE_CHECK_ARGS(0);
  atomic_store(&watch->ends_at, UNTIMED);
  return 0;
}

/* end(): no job is under way. */
COLLAGE_EXPORT(collage_guard_end) {
  COLLAGE_CHECK_ARGS(0);
  atomic_store(&watch->idle_since, now_ns());
  atomic_store(&watch->ends_at, IDLE);
  return 0;
}

/* read(path): the beginning of a text file, such as those of proc(5), which have no size; empty
 * when it cannot be read. */
COLLAGE_EXPORT(collage_guard_read) {
  COLLAGE_CHECK_ARGS(1);
  char path[4096];
  if (text_of(&args[0], path, sizeof(path)) == NULL)
    return collage_fail("TypeError", "a path is expected");
  char* text = malloc(MOST_BYTES);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  size_t size = 0;
  while (text != NULL && fd >= 0 && size < MOST_BYTES) {
    ssize_t count = read(fd, text + size, MOST_BYTES - size);
    if (count <= 0) break;
    size += (size_t)count;
  }
  if (fd >= 0) close(fd);
  int failed = return_text(text, size, result);
  free(text);
  return failed;
}

/* machine(): the processor's architecture, as uname(2) has it. */
COLLAGE_EXPORT(collage_guard_machine) {
  COLLAGE_CHECK_ARGS(0);
  struct utsname name;
  if (uname(&name) != 0) return collage_fail("RuntimeError", "uname: %s", strerror(errno));
  return return_text(name.machine, strlen(name.machine), result);
}

/* folder(path): make it. */
COLLAGE_EXPORT(collage_guard_folder) {
  COLLAGE_CHECK_ARGS(1);
  char path[4096];
  if (text_of(&args[0], path, sizeof(path)) == NULL)
    return collage_fail("TypeError", "a path is expected");
  if (mkdir(path, 0777) != 0 && errno != EEXIST)
    return collage_fail("RuntimeError", "mkdir '%s': %s", path, strerror(errno));
  return 0;
}

/* load(path or name): load a library for those that need it; what the loader says, or nothing. */
COLLAGE_EXPORT(collage_guard_load) {
  COLLAGE_CHECK_ARGS(1);
  char path[4096];
  if (text_of(&args[0], path, sizeof(path)) == NULL)
    return collage_fail("TypeError", "a path is expected");
  const char* words = dlopen(path, RTLD_NOW | RTLD_GLOBAL) == NULL ? dlerror() : "";
  return return_text(words, strlen(words), result);
}
