/* src/lane/profile_text.h: the built-in profiles: the files of profiles/ as they were when this was built. */
#ifndef XL_LANE_PROFILE_TEXT_H
#define XL_LANE_PROFILE_TEXT_H

#include <stddef.h>

typedef struct { const char *name, *text; } xl_profile_text;
extern const xl_profile_text xl_profile_texts[];   /* ends with a NULL name */

#endif
