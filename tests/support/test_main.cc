// The main() of all tests. Programs that have a main() of their own do not get this one, because it is in a library.
namespace feedline::test {
int run_tests(int argc, char** argv);
}

int main(int argc, char** argv) { return feedline::test::run_tests(argc, argv); }
