/* One line of JSON: a flat object of numbers, short texts, booleans and nulls. That is all the socket speaks, so
 * this reader refuses everything else instead of understanding it. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

struct reader {
    const char *at;
    const char *problem;
};

static void skip_space(struct reader *reader)
{
    while (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\r' || *reader->at == '\n')
        reader->at++;
}

static bool fail(struct reader *reader, const char *problem)
{
    if (reader->problem == NULL)
        reader->problem = problem;
    return false;
}

static bool expect(struct reader *reader, char wanted, const char *problem)
{
    skip_space(reader);
    if (*reader->at != wanted)
        return fail(reader, problem);
    reader->at++;
    return true;
}

/* Texts here are names, causes and keys: printable ASCII with the plain escapes is enough. */
static bool read_text(struct reader *reader, char *into, size_t size)
{
    size_t have = 0;
    if (!expect(reader, '"', "a text must be in double quotes"))
        return false;
    while (*reader->at != '"') {
        char letter = *reader->at++;
        if (letter == '\\') {
            letter = *reader->at++;
            if (letter != '"' && letter != '\\' && letter != '/')
                return fail(reader, "only the escapes \\\" \\\\ \\/ are understood");
        } else if (letter < 0x20 || letter > 0x7e) {
            return fail(reader, "a text must be printable ASCII and end in a double quote");
        }
        if (have + 1 >= size)
            return fail(reader, "a text is too long");
        into[have++] = letter;
    }
    reader->at++;
    into[have] = '\0';
    return true;
}

static const char *skip_digits(const char *at)
{
    while (isdigit((unsigned char)*at))
        at++;
    return at;
}

/* The grammar of RFC 8259 section 6; strtod alone would take hex, inf and nan. */
static const char *number_end(const char *at, bool *whole)
{
    *whole = true;
    if (*at == '-')
        at++;
    if (!isdigit((unsigned char)*at) || (*at == '0' && isdigit((unsigned char)at[1])))
        return NULL;
    at = skip_digits(at);
    if (*at == '.') {
        *whole = false;
        if (!isdigit((unsigned char)at[1]))
            return NULL;
        at = skip_digits(at + 1);
    }
    if (*at == 'e' || *at == 'E') {
        *whole = false;
        at++;
        if (*at == '+' || *at == '-')
            at++;
        if (!isdigit((unsigned char)*at))
            return NULL;
        at = skip_digits(at);
    }
    return at;
}

static bool read_number(struct reader *reader, struct field *field)
{
    bool whole;
    const char *end = number_end(reader->at, &whole);
    if (end == NULL)
        return fail(reader, "a value is no JSON number, text, true, false or null");
    field->number = strtod(reader->at, NULL);
    if (!isfinite(field->number))
        return fail(reader, "a number is too large");
    field->type = VALUE_NUMBER;
    if (whole) {
        errno = 0;
        field->integer = strtoll(reader->at, NULL, 10);
        if (errno == ERANGE)
            return fail(reader, "a whole number is too large");
        field->type = VALUE_INTEGER;
    }
    reader->at = end;
    return true;
}

static bool read_word(struct reader *reader, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

static bool read_value(struct reader *reader, struct field *field)
{
    skip_space(reader);
    if (*reader->at == '"') {
        field->type = VALUE_TEXT;
        return read_text(reader, field->text, sizeof field->text);
    }
    if (*reader->at == '{' || *reader->at == '[')
        return fail(reader, "a message is one flat object");
    if (read_word(reader, "null")) {
        field->type = VALUE_NULL;
        return true;
    }
    field->truth = *reader->at == 't';
    if (read_word(reader, "true") || read_word(reader, "false")) {
        field->type = VALUE_BOOL;
        return true;
    }
    return read_number(reader, field);
}

static bool read_field(struct reader *reader, struct message *message)
{
    struct field *field = &message->fields[message->count];
    if (message->count == MAX_FIELDS)
        return fail(reader, "a message has too many fields");
    memset(field, 0, sizeof *field);
    if (!read_text(reader, field->name, sizeof field->name))
        return false;
    if (message_find(message, field->name) != NULL)
        return fail(reader, "a field is given twice");
    if (!expect(reader, ':', "a field needs a colon and a value") || !read_value(reader, field))
        return false;
    message->count++;
    return true;
}

static bool read_object(struct reader *reader, struct message *message)
{
    if (!expect(reader, '{', "a message is one JSON object on a line"))
        return false;
    skip_space(reader);
    if (*reader->at == '}') {
        reader->at++;
    } else {
        do {
            skip_space(reader);
            if (!read_field(reader, message))
                return false;
            skip_space(reader);
        } while (*reader->at == ',' && reader->at++ != NULL);
        if (!expect(reader, '}', "an object must end in a closing brace"))
            return false;
    }
    skip_space(reader);
    return *reader->at == '\0' || fail(reader, "something follows the object");
}

bool message_parse(struct message *message, const char *line, char error[ERROR_BYTES])
{
    struct reader reader = {.at = line};
    message->count = 0;
    if (read_object(&reader, message))
        return true;
    snprintf(error, ERROR_BYTES, "%s", reader.problem);
    return false;
}

const struct field *message_find(const struct message *message, const char *name)
{
    for (int at = 0; at < message->count; at++) {
        if (strcmp(message->fields[at].name, name) == 0)
            return &message->fields[at];
    }
    return NULL;
}

void json_append(char *buffer, size_t size, const char *format, ...)
{
    size_t have = strlen(buffer);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(buffer + have, size - have, format, arguments);
    va_end(arguments);
}
