package worker

import (
	"fmt"
	"io"
	"os"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
)

// maxKeyFile is the maximum size of a key file.
const maxKeyFile = 4 << 10

// ReadKey reads an API key from a file, such as /run/secrets/servo or /dev/fd/3; no file, no key.
func ReadKey(field, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	file, err := os.Open(name) //nolint:gosec //nolint:gosec // the operator chooses the file
	if err != nil {
		return "", fault.New(fault.InvalidArgument, "cannot be read: "+err.Error(), fault.Field(field), fault.Remedy("use a file with an API key"), fault.Cause(err))
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	key := strings.TrimSpace(string(content))
	if err != nil || key == "" || len(content) > maxKeyFile || strings.ContainsAny(key, " \t\r\n") {
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("%q does not contain one API key", name), fault.Field(field), fault.Remedy("write only the key into the file"), fault.Cause(err))
	}
	return key, nil
}
