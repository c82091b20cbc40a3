#include "lane/memory_csv.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/test.h"

static xl_memory_csv of(const char *text)
{
    xl_memory_csv c = { .text = xl_str_of(text) };
    return c;
}

TEST(what_is_written_is_read)
{
    char dir[] = "/tmp/xlane-memory-XXXXXX";
    xl_arena a = { 0 };
    xl_journal j = { 0 };
    xl_buf b = { 0 };
    CHECK(mkdtemp(dir));
    CHECK_OK(xl_memory_csv_create(&j, dir, false));
    xl_memory_csv_put(&b, 3, 77, 1, &(xl_memory_row){ .t = 1.5, .step = 9, .in_use = 10, .peak = 20, .limit = -1,
                                                      .largest = 4, .since = -1 });
    xl_journal_add(&j, xl_buf_view(&b), 1);
    xl_journal_close(&j);
    xl_memory_csv c = xl_memory_csv_open(&a, dir);
    xl_memory_row r;
    CHECK(xl_memory_csv_next(&c, &r));
    CHECK(r.t == 1.5 && xl_str_is(r.rank, "3") && xl_str_is(r.device, "1") && r.step == 9 && r.in_use == 10);
    CHECK(r.peak == 20 && r.limit == -1 && r.largest == 4 && r.since == -1);
    CHECK(!xl_memory_csv_next(&c, &r));
    unlink(xl_path_join(&a, dir, "memory.csv"));
    rmdir(dir);
    c = xl_memory_csv_open(&a, dir);
    CHECK(!xl_memory_csv_next(&c, &r));
    xl_buf_fini(&b);
    xl_arena_fini(&a);
}

TEST(columns_go_by_their_names)
{
    xl_memory_row r;
    xl_memory_csv c = of("t,device,rank,bytes_in_use,new_thing,bytes_limit\n2,5,1,100,7,200\n"
                         "t,rank,pid,device,step,bytes_in_use\n3,0,9,2,4,50\n");
    CHECK(xl_memory_csv_next(&c, &r) && xl_str_is(r.device, "5") && xl_str_is(r.rank, "1") && r.limit == 200);
    CHECK(r.peak == -1 && r.step == -1);
    CHECK(xl_memory_csv_next(&c, &r) && xl_str_is(r.device, "2") && r.step == 4 && r.in_use == 50 && r.limit == -1);
    CHECK(!xl_memory_csv_next(&c, &r));
}

TEST(torn_lines_are_passed_over)
{
    xl_memory_row r;
    xl_memory_csv c = of("t,rank,pid,device,step,bytes_in_use\n1,0\n\n,,,,,\nx,0,1,2,3,4\n1,0,9,2,4,\n"
                         "1,0,9,2,4,50,60,70,80,90,1,2,3,4,5,6,7,8,9\n1,0");
    CHECK(xl_memory_csv_next(&c, &r) && r.in_use == 50);
    CHECK(!xl_memory_csv_next(&c, &r));
    c = of("1,0,9,2,4,50\n"); /* no names */
    CHECK(!xl_memory_csv_next(&c, &r));
}
