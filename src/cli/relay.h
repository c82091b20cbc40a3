/* src/cli/relay.h
 * Signals on their way through this process to the command that it started. One sent to this process alone is passed
 * on; one that the command got by itself (Ctrl-C, kill to the process group) is not, so that it gets each once. For one
 * command at a time, in a process of one thread. */
#ifndef XL_CLI_RELAY_H
#define XL_CLI_RELAY_H

#include <sys/types.h>

void xl_relay_begin(void);          /* before the fork: signals wait until there is somebody to pass them to */
void xl_relay_child(void);          /* in the child: signals as they were */
void xl_relay_to(pid_t child); /* after the fork; 0: there is no child. Until the process ends, signals do not end it */
void xl_relay_end(void);            /* the child has ended */
int xl_relay_stray(void);           /* since then: a signal that would have ended this process; 0: none */

#endif
