package blob

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.arco.dev/servo/internal/base/fault"
)

// MaxPath is the maximum length of an object's path, in bytes.
const MaxPath = 1_000

// CheckPath refuses a path that a store could interpret: absolute paths, empty parts, "." and "..",
// backslashes, control characters and names that end in the suffix of fileblob's attributes.
func CheckPath(path string) error {
	refuse := func(message, remedy string) error {
		return fault.New(fault.InvalidArgument, fmt.Sprintf("%s: %q", message, clip(path)), fault.Field("path"), fault.Remedy(remedy))
	}
	switch {
	case path == "":
		return refuse("a path is empty", "name an object")
	case len(path) > MaxPath:
		return refuse(fmt.Sprintf("a path has %d bytes, the limit is %d", len(path), MaxPath), "shorten it")
	case !utf8.ValidString(path):
		return refuse("a path is not valid UTF-8", "write UTF-8 text")
	case strings.ContainsFunc(path, func(r rune) bool { return r == '\\' || unicode.IsControl(r) }):
		return refuse("a path contains a backslash or a control character", "use letters, digits, '_', '-', '.' and '/'")
	}
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "":
			return refuse("a path has an empty part", "remove the extra slash")
		case ".", "..":
			return refuse("a path contains "+part, "write a path below the prefix")
		}
		if strings.HasSuffix(part, ".attrs") {
			return refuse("a path ends in .attrs", "choose another name")
		}
	}
	return nil
}

// CheckUnder refuses a path that is not below a prefix. The prefix ends with a slash.
func CheckUnder(prefix, path string) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	if !strings.HasSuffix(prefix, "/") || !strings.HasPrefix(path, prefix) {
		return fault.New(fault.Forbidden, fmt.Sprintf("path %q is outside of prefix %q", clip(path), clip(prefix)),
			fault.Field("path"), fault.Remedy("use a path below the prefix of the attempt"))
	}
	return nil
}

func clip(text string) string {
	const longest = 120
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
