// Files of our own that go with the process, whatever ends it.
#pragma once

#include <cstddef>
#include <string>

namespace livegnn {

int nameless_file(const std::string& folder);  // its descriptor, or -1 and errno
// Room on the disk is taken at once: a page that finds none later would end the process. Returns 0 or an errno.
int take_room(int file, std::size_t from, std::size_t to);

}  // namespace livegnn
