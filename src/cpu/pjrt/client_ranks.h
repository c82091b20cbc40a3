/* src/cpu/pjrt/client_ranks.h
 * A client whose devices belong to several processes: what the frontend tells about the processes, and how they
 * connect. */
#ifndef XL_CPU_PJRT_CLIENT_RANKS_H
#define XL_CPU_PJRT_CLIENT_RANKS_H

#include "cpu/pjrt/api.h"
#include "cpu/run/mail.h"

typedef struct { int64_t me, n; } xl_client_ranks;

/* From the create options node_id and num_nodes; 0 of 1 without them. */
xl_error *xl_client_ranks_read(const PJRT_Client_Create_Args *args, xl_client_ranks *out) XL_MUST_USE;
/* Joins the other processes through the frontend's key-value callbacks. *out is NULL for a single process. */
xl_error *xl_client_ranks_join(const PJRT_Client_Create_Args *args, const xl_client_ranks *r, uint32_t devices,
                               xl_mail **out) XL_MUST_USE;

#endif
