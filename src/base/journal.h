/* src/base/journal.h
 * A file to which this process appends whole lines while it lives, possibly inside another program and together with
 * other writers. That program may close our descriptor and open a file of its own under the same number. So device and
 * inode are compared before each write, and nothing is written on a mismatch. The descriptor is then abandoned (it is
 * not ours to close), and each later write opens the file by its path, if that is still the same file, in its own
 * descriptor table (xl_file_apart).
 * A line that cannot be written whole is kept and tried again with the next one; if the backlog is full, it is counted
 * as lost. Any thread. A forked child starts with an empty backlog. */
#ifndef XL_BASE_JOURNAL_H
#define XL_BASE_JOURNAL_H

#include "base/str.h"
#include "base/thread.h"

typedef struct {
    char *path;                     /* absolute if possible; NULL: closed */
    int fd;
    uint64_t dev, ino;              /* of the file */
    bool shared; /* others append to it too: a torn line is ended with a newline, otherwise cut off */
    bool torn;                      /* it ends in part of one of our lines */
    xl_buf kept;                    /* lines that wait for room on the disk */
    uint64_t nkept;                 /* the number of those lines */
    _Atomic uint64_t lost;
    _Atomic int pid;
    xl_mutex lock;
} xl_journal;

/* Opens `path`, or creates it with mode 0600 and `head` as its first bytes. Anything but a regular file is an error, a
 * symbolic link too. */
xl_error *xl_journal_open(xl_journal *j, const char *path, xl_str head, bool shared) XL_MUST_USE;
/* Adds one or more whole lines (n of them, ending in a newline). False: none of them is in the file yet. */
bool xl_journal_add(xl_journal *j, xl_str lines, uint64_t n);
/* Tries to write the backlog. False: part of it is still waiting. */
bool xl_journal_flush(xl_journal *j);
uint64_t xl_journal_missing(xl_journal *j); /* lines that are not in the file: lost, or still waiting */
void xl_journal_close(
    xl_journal *j); /* tries once more, then counts the backlog as lost; {0} and closed ones are fine */

#endif
