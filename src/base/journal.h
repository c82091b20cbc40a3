/* src/base/journal.h
 * A file that this process adds whole lines to for as long as it lives, perhaps in somebody else's process and beside
 * other writers. Other code may close our descriptor and open a file of its own under the same number: device and inode
 * are compared before each write, and nothing is written on a mismatch. The descriptor is then forgotten (it is not
 * ours to close), and from there on each write opens the file by its path, if that still leads to the same file, in a
 * descriptor table of its own (xl_file_apart). A line is written whole,
 * or kept and tried again with the next one; what finds no room there is counted as lost. Any thread; a forked child
 * goes on with an empty backlog. */
#ifndef XL_BASE_JOURNAL_H
#define XL_BASE_JOURNAL_H

#include "base/str.h"
#include "base/thread.h"

typedef struct {
    char *path;                     /* absolute where that could be found out; NULL: closed */
    int fd;
    uint64_t dev, ino;              /* of the file */
    bool shared; /* others add to it too: what a failed write left is ended with a newline, else taken back */
    bool torn;                      /* it ends in a part of a line of ours */
    xl_buf kept;                    /* lines that wait for room on the disk */
    uint64_t nkept;                 /* how many those are */
    _Atomic uint64_t lost;
    _Atomic int pid;
    xl_mutex lock;
} xl_journal;

/* Opens `path`, or makes it with mode 0600 and `head` as its first bytes. A link or anything but a plain file is an
 * error. */
xl_error *xl_journal_open(xl_journal *j, const char *path, xl_str head, bool shared) XL_MUST_USE;
/* Adds one or more whole lines (n of them, ending in a newline). False: none of them is in the file yet. */
bool xl_journal_add(xl_journal *j, xl_str lines, uint64_t n);
/* Tries what was kept once more. False: some still waits. */
bool xl_journal_flush(xl_journal *j);
uint64_t xl_journal_missing(xl_journal *j); /* lines that are not in the file: lost, or still waiting */
void xl_journal_close(
    xl_journal *j); /* tries once more, then counts what waited as lost; {0} and closed ones are fine */

#endif
