#include "lane/profile_text.h"

const xl_profile_text xl_profile_texts[] = {
#include "profiles.inc" /* made by the Makefile */
    { NULL, NULL },
};
