/* SPDX-License-Identifier: MIT
 *
 * proto_fields.h - the numbers of profile.proto's fields, each with the name of its message.
 *
 * This header is shared with the command, which reads and writes the same format.
 */
#pragma once

enum {
    PROFILE_SAMPLE_TYPE = 1,
    PROFILE_SAMPLE = 2,
    PROFILE_MAPPING = 3,
    PROFILE_LOCATION = 4,
    PROFILE_FUNCTION = 5,
    PROFILE_STRING = 6,
    PROFILE_DROP_FRAMES = 7,
    PROFILE_TIME = 9,
    PROFILE_DURATION = 10,
    PROFILE_PERIOD_TYPE = 11,
    PROFILE_PERIOD = 12,
    PROFILE_COMMENT = 13,
    PROFILE_DEFAULT_TYPE = 14,
    TYPE_NAME = 1,
    TYPE_UNIT = 2,
    SAMPLE_LOCATION = 1,
    SAMPLE_VALUE = 2,
    SAMPLE_LABEL = 3,
    LABEL_KEY = 1,
    LABEL_TEXT = 2,
    LABEL_NUMBER = 3,
    LABEL_UNIT = 4,
    MAPPING_ID = 1,
    MAPPING_START = 2,
    MAPPING_LIMIT = 3,
    MAPPING_OFFSET = 4,
    MAPPING_FILE = 5,
    MAPPING_BUILD_ID = 6,
    MAPPING_HAS_FUNCTIONS = 7,
    MAPPING_HAS_FILES = 8,
    MAPPING_HAS_LINES = 9,
    MAPPING_HAS_INLINED = 10,
    LOCATION_ID = 1,
    LOCATION_MAPPING = 2,
    LOCATION_ADDRESS = 3,
    LOCATION_LINE = 4,
    LINE_FUNCTION = 1,
    LINE_NUMBER = 2,
    FUNCTION_ID = 1,
    FUNCTION_NAME = 2,
    FUNCTION_SYSTEM_NAME = 3,
    FUNCTION_FILE = 4,
    FUNCTION_START_LINE = 5,
};
