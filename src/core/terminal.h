// Whether people or a file read what is printed.
#pragma once

namespace lockstep {

/// Whether output to `fd` ends on a terminal. mpirun gives its ranks a terminal of their own, whatever its
/// own output is: then mpirun's counts.
bool on_terminal(int fd);

}  // namespace lockstep
