package cloudcost

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"go.arco.dev/servo"
)

// lake is the store of the data: a directory with files of JSON lines. A real project has a bucket
// in its place. A file is named by what it holds, not by the run that wrote it: a second
// attempt, and the next run for the account, replace it, so the lake does not grow.
type lake struct{ dir string }

// File refers to data. It is what results carry in place of the data itself.
type File struct {
	Name   string `json:"name"` // below the lake's directory
	Rows   int    `json:"rows"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// fileOf names the file of one step for the task's tenant and account.
func fileOf(task *servo.Task, p Params, domain, step string) string {
	return path.Join(task.Tenant, domain, p.Provider+"-"+p.Account, step+".jsonl")
}

// write replaces a file. Readers see the old one or the new one, never a part of it.
func write[T any](l lake, task *servo.Task, name string, rows []T) (File, error) {
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for _, row := range rows {
		if err := lines.Encode(row); err != nil {
			return File{}, err
		}
	}
	sum := sha256.Sum256(text.Bytes())
	file := File{Name: name, Rows: len(rows), Bytes: int64(text.Len()), SHA256: hex.EncodeToString(sum[:])}
	return file, l.replace(name, fmt.Sprintf("%s.%d", name, task.Attempt), text.Bytes())
}

func (l lake) replace(name, temporary string, data []byte) error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(l.dir) // no name leads out of it
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.MkdirAll(filepath.Dir(filepath.FromSlash(name)), 0o700); err != nil {
		return err
	}
	if err := root.WriteFile(filepath.FromSlash(temporary), data, 0o600); err != nil {
		return err
	}
	return root.Rename(filepath.FromSlash(temporary), filepath.FromSlash(name))
}

// read gives the rows of a file, if it is still the one that was written.
func read[T any](l lake, file File) ([]T, error) {
	const again = "run the pipeline again, or servo runs retry --all"
	root, err := os.OpenRoot(l.dir)
	var data []byte
	if err == nil {
		defer func() { _ = root.Close() }() // only read
		data, err = root.ReadFile(filepath.FromSlash(file.Name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &servo.Error{Code: servo.MissingInput, Message: file.Name + " is gone", SuggestedAction: again, Err: err}
	}
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != file.SHA256 {
		return nil, &servo.Error{Code: servo.DataCorruption, Message: file.Name + " was replaced by another run", SuggestedAction: again}
	}
	rows := make([]T, 0, file.Rows)
	for lines := json.NewDecoder(bytes.NewReader(data)); lines.More(); {
		var row T
		if err := lines.Decode(&row); err != nil {
			return nil, servo.Fail(servo.SchemaViolation, fmt.Errorf("%s: %w", file.Name, err))
		}
		rows = append(rows, row)
	}
	return rows, nil
}
