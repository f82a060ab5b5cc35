// A shared library that can be loaded and has no GetPjrtApi.
extern "C" int tessera_not_a_plugin() { return 1; }
