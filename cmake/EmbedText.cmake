# cmake -DTEXT=FILE -DOUTPUT=FILE -P EmbedText.cmake: writes a text file as a string literal of C++, which a source includes.
file(READ "${TEXT}" text)
file(WRITE "${OUTPUT}" "R\"embedded(\n${text})embedded\"\n")
