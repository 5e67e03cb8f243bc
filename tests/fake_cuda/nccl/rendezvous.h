/* Where ranks meet, by their unique id. */
#ifndef FAKE_NCCL_RENDEZVOUS_H
#define FAKE_NCCL_RENDEZVOUS_H

#include "communicator.h"

/* Meets the other ranks and fills in `segment`; ends early if the communicator is aborted. */
ncclResult_t rendezvous(ncclComm_t comm);
/* A few digits that tell communicators apart in the log. */
unsigned rendezvous_tag(const ncclUniqueId *id);

#endif
