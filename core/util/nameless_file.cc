#include "util/nameless_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace livegnn {

int nameless_file(const std::string& folder) {
  std::string path = folder + "/livegnn-XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return file;
  unlink(path.c_str());
  fcntl(file, F_SETFD, FD_CLOEXEC);
  return file;
}

int take_room(int file, std::size_t from, std::size_t to) {
#ifdef __APPLE__
  fstore_t wanted = {F_ALLOCATEALL, F_PEOFPOSMODE, 0, static_cast<off_t>(to - from), 0};
  if (fcntl(file, F_PREALLOCATE, &wanted) < 0) return errno;
  return ftruncate(file, static_cast<off_t>(to)) < 0 ? errno : 0;
#else
  int failed = EINTR;
  while (failed == EINTR) failed = posix_fallocate(file, static_cast<off_t>(from), static_cast<off_t>(to - from));
  if (failed != 0) (void)!ftruncate(file, static_cast<off_t>(from));  // what it got is given back
  return failed;
#endif
}

}  // namespace livegnn
