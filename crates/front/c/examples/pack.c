/* Makes a SquashFS image of a directory: pack DIR IMAGE. */
#include <forerun.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    forerun_error *error = NULL;
    uint64_t len = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: pack DIR IMAGE\n");
        return 2;
    }
    forerun_pack_options *options = forerun_pack_options_new("squashfs", &error);
    int code = !options
        || forerun_pack_options_set_compressor(options, "zstd", &error) < 0
        || forerun_pack_options_set_level(options, 3, &error) < 0
        || forerun_pack(argv[1], argv[2], options, &len, &error) < 0;
    if (code)
        fprintf(stderr, "%s\n", forerun_error_message(error));
    else
        printf("%llu bytes\n", (unsigned long long)len);
    forerun_error_free(error);
    forerun_pack_options_free(options);
    return code;
}
