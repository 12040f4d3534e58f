/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator over what a program has already: here processes that are connected, each with each, by stream sockets.
 */
#ifndef SOCKETS_H
#define SOCKETS_H

#include <mdlm/mdlm.h>

enum { MOST_RANKS = 8 };

/* sockets[r] is connected with rank r (that of rank itself is not looked at). The communicator closes them when its
 * last user is gone. */
mdlm_status sockets_comm(int rank, int size, const int *sockets, mdlm_comm **out);

#endif
