// A stand-in for NVRTC: kernels in CUDA C++ are compiled for the host by g++.
//
// What comes out in place of a cubin is a shared object, which the stand-in driver loads. It is kept
// in the folder HOST_CUDA_CACHE under a hash of all that it depends on.

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

extern char **environ;

namespace fs = std::filesystem;

namespace {

// The values of nvrtcResult that are used.
enum Result { SUCCESS = 0, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6 };

struct Program {
    std::string text;
    std::string name;
    std::string log;
    std::string binary;
    std::string architecture = "sm_75";
    std::vector<std::string> passed_on;
};

std::string setting(const char *name, const std::string &otherwise)
{
    const char *value = std::getenv(name);
    return value != nullptr && *value != 0 ? value : otherwise;
}

std::string read_file(const fs::path &path)
{
    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    return content.str();
}

void write_file(const fs::path &path, const std::string &content)
{
    std::ofstream(path, std::ios::binary) << content;
}

// The folder of this source, which has the headers.
fs::path headers() { return HOST_CUDA_COMPILER_FOLDER; }

// Runs a command with its output in files. Returns whether it succeeded.
bool run(const std::vector<std::string> &words, const fs::path &out, const fs::path &log)
{
    std::vector<char *> arguments;
    for (const std::string &word : words) arguments.push_back(const_cast<char *>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), flags, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), flags, 0600);
    // What is preloaded into the tests isn't meant for the compiler.
    std::vector<char *> variables;
    for (char **at = environ; *at != nullptr; at++)
        if (std::strncmp(*at, "LD_PRELOAD=", 11) != 0) variables.push_back(*at);
    variables.push_back(nullptr);
    pid_t child = 0;
    const int failed = posix_spawnp(
        &child, arguments[0], &actions, nullptr, arguments.data(), variables.data());
    posix_spawn_file_actions_destroy(&actions);
    int status = 1;
    if (failed != 0 || waitpid(child, &status, 0) != child) return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::vector<std::string> base_command()
{
    std::vector<std::string> words = {
        setting("HOST_CUDA_CXX", "g++"), "-std=c++17", "-w", "-x", "c++"};
    std::istringstream more(setting("HOST_CUDA_CXXFLAGS", ""));
    for (std::string word; more >> word;) words.push_back(word);
    return words;
}

// Options as NVRTC takes them, as far as they mean something here. False: an unknown one.
bool take_options(Program &program, int count, const char *const *options)
{
    static const std::regex architecture("(--gpu-architecture|-arch)=(sm_\\d+)a?");
    static const std::regex without_meaning(
        "--fmad=false|-fmad=false|-default-device|--device-as-default-execution-space|--std=c\\+\\+17"
        "|-std=c\\+\\+17|--dopt=on|--extra-device-vectorization|-lineinfo|--generate-line-info"
        "|--restrict|--use_fast_math|--ptxas-options=.*|--resource-usage|--disable-warnings|-w");
    static const std::regex passed_on("-D\\w+(=.*)?|-I.+");
    for (int n = 0; n < count; n++) {
        const std::string option = options[n];
        std::smatch found;
        if (std::regex_match(option, found, architecture))
            program.architecture = found[2];
        else if (std::regex_match(option, passed_on))
            program.passed_on.push_back(option);
        else if (!std::regex_match(option, without_meaning)) {
            program.log = "nvrtc: error: unrecognized option " + option + " found\n";
            return false;
        }
    }
    return true;
}

// The text after preprocessing, and what starts its kernels.
std::string with_launches(const std::string &text, const std::string &architecture)
{
    // What __global__ has become; see host_prelude.h.
    static const std::string mark = "__attribute__((__used__, __noinline__))";
    static const std::regex name("void\\s+(\\w+)\\s*\\(");
    std::string end = "\n#include \"host_launch.h\"\n";
    for (size_t at = text.find(mark); at != std::string::npos;) {
        const size_t next = text.find(mark, at + mark.size());
        const std::string kernel = text.substr(at, next == std::string::npos ? next : next - at);
        std::smatch found;
        if (std::regex_search(kernel, found, name)) {
            const bool waits = kernel.find("host_cuda_wait()") != std::string::npos;
            end += waits ? "HOST_KERNEL_WITH_BARRIERS(" : "HOST_KERNEL(";
            end += found[1].str() + ")\n";
        }
        at = next;
    }
    return text + end + "extern \"C\" { extern const char host_architecture[] = \"" + architecture
        + "\"; }\n";
}

std::string hash_of(const std::string &text)
{
    // Two FNV-1a hashes of 64 bits with different beginnings.
    unsigned long long a = 14695981039346656037ULL, b = 1099511628211ULL;
    for (unsigned char byte : text) {
        a = (a ^ byte) * 1099511628211ULL;
        b = (b ^ byte ^ 0x5A) * 1099511628211ULL;
    }
    char found[40];
    std::snprintf(found, sizeof found, "%016llx%016llx", a, b);
    return found;
}

std::string key_of(const Program &program)
{
    std::string all = program.text + '\0' + program.name + '\0' + program.architecture;
    for (const std::string &word : program.passed_on) all += '\0' + word;
    for (const std::string &word : base_command()) all += '\0' + word;
    for (const char *file : {"host_prelude.h", "host_launch.h", "host_kernel.h"})
        all += '\0' + read_file(headers() / file);
    return hash_of(all);
}

bool build(Program &program, const fs::path &folder, const fs::path &to)
{
    const fs::path source = folder / "program.cu", whole = folder / "whole.cpp";
    const fs::path expanded = folder / "expanded.cpp", log = folder / "log";
    write_file(source, "#line 1 \"" + program.name + "\"\n" + program.text);
    std::vector<std::string> words = base_command();
    words.insert(words.end(), program.passed_on.begin(), program.passed_on.end());
    const std::string prelude = headers() / "host_prelude.h";
    words.insert(words.end(), {"-E", "-include", prelude, source});
    bool is_built = run(words, expanded, log);
    if (is_built) {
        write_file(whole, with_launches(read_file(expanded), program.architecture));
        words = base_command();
        words.insert(
            words.end(),
            {"-O1", "-ffp-contract=off", "-fno-math-errno", "-fno-strict-aliasing", "-fno-exceptions",
             "-fno-gnu-unique", "-fPIC", "-shared", "-Wl,-Bsymbolic", "-I" + headers().string(),
             "-o", to, whole, "-lm"});
        is_built = run(words, folder / "out", log);
    }
    program.log = read_file(log);
    return is_built;
}

Result compile(Program &program)
{
    const fs::path cache = setting("HOST_CUDA_CACHE", fs::temp_directory_path() / "host_cuda");
    const fs::path kept = cache / (key_of(program) + ".so");
    if (!fs::exists(kept)) {
        std::string folder = cache / "build-XXXXXX";
        fs::create_directories(cache);
        if (mkdtemp(folder.data()) == nullptr) return INVALID_INPUT;
        const fs::path made = fs::path(folder) / "made.so";
        const bool is_built = build(program, folder, made);
        // Another process may have made the same: either will do.
        if (is_built) fs::rename(made, kept);
        fs::remove_all(folder);
        if (!is_built) return COMPILATION;
    }
    program.binary = read_file(kept);
    return SUCCESS;
}

Result copy_out(const std::string &from, char *to)
{
    std::memcpy(to, from.data(), from.size());
    return SUCCESS;
}

}  // namespace

extern "C" {

int nvrtcVersion(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return SUCCESS;
}

int nvrtcGetNumSupportedArchs(int *count)
{
    *count = 4;
    return SUCCESS;
}

int nvrtcGetSupportedArchs(int *architectures)
{
    const int known[] = {75, 80, 90, 120};
    std::memcpy(architectures, known, sizeof known);
    return SUCCESS;
}

const char *nvrtcGetErrorString(int result)
{
    switch (result) {
    case SUCCESS: return "NVRTC_SUCCESS";
    case INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case COMPILATION: return "NVRTC_ERROR_COMPILATION";
    default: return "NVRTC_ERROR unknown";
    }
}

int nvrtcCreateProgram(
    Program **made, const char *text, const char *name, int headers, const char *const *,
    const char *const *)
{
    if (text == nullptr || headers != 0) return INVALID_INPUT;
    *made = new Program;
    (*made)->text = text;
    (*made)->name = name == nullptr ? "default_program" : name;
    return SUCCESS;
}

int nvrtcDestroyProgram(Program **program)
{
    if (program == nullptr || *program == nullptr) return INVALID_PROGRAM;
    delete *program;
    *program = nullptr;
    return SUCCESS;
}

int nvrtcCompileProgram(Program *program, int count, const char *const *options)
{
    if (program == nullptr) return INVALID_PROGRAM;
    return take_options(*program, count, options) ? compile(*program) : INVALID_OPTION;
}

int nvrtcGetCUBINSize(Program *program, size_t *nbytes)
{
    *nbytes = program->binary.size();
    return SUCCESS;
}

int nvrtcGetCUBIN(Program *program, char *to) { return copy_out(program->binary, to); }

int nvrtcGetPTXSize(Program *, size_t *nbytes)
{
    *nbytes = 0;
    return SUCCESS;
}

int nvrtcGetPTX(Program *, char *) { return INVALID_PROGRAM; }

int nvrtcGetProgramLogSize(Program *program, size_t *nbytes)
{
    *nbytes = program->log.size() + 1;
    return SUCCESS;
}

int nvrtcGetProgramLog(Program *program, char *to)
{
    std::memcpy(to, program->log.c_str(), program->log.size() + 1);
    return SUCCESS;
}
}
