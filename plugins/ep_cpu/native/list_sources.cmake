# Writes a list of the sources with their hashes beside the compiled module. A certificate is bound
# to the list instead of the module, whose bytes differ by compiler:
#   cmake -DFOLDER=native -DOUTPUT=_native.sources -P list_sources.cmake
file(GLOB_RECURSE names RELATIVE ${FOLDER} ${FOLDER}/*.cpp ${FOLDER}/*.h ${FOLDER}/CMakeLists.txt)
list(SORT names)
set(lines "")
foreach(name IN LISTS names)
  file(SHA256 ${FOLDER}/${name} hash)
  string(APPEND lines "${hash}  ${name}\n")
endforeach()
file(WRITE ${OUTPUT} "${lines}")
