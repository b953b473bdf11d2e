package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/worker/host"
)

// builtCode is the result of a build.
type builtCode struct {
	File   string `json:"file"`
	Digest string `json:"digest"`
	Files  int    `json:"files"`
	Bytes  int    `json:"bytes"`
}

// newBuild packages a Python project.
func newBuild() *cobra.Command {
	var file, python, interpreter string
	return newLocal(spec{
		use: "build", short: "Create an archive of a Python project",
		long: `Package a Python project as an archive: its files, without environments, caches and hidden files. The
digest covers the names and contents of the files; the same files result in the same archive.

If the project has a requirements.txt, each requirement must have hashes. servo worker --python and
servo deploy --python accept the archive: the worker verifies the digest and installs the
requirements once per digest, and deployed assets name the digest, so that only workers with this
code run them. The project is imported before it is packaged.`,
		example: `  servo build --python ./shop --file shop.zip
  servo deploy --python shop.zip --tenant acme
  servo worker --python shop.zip`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&python, "python", ".", "directory of the Python project")
			cmd.Flags().StringVar(&interpreter, "interpreter", "", "interpreter of Python (default: .venv of the project, VIRTUAL_ENV or python3)")
			cmd.Flags().StringVarP(&file, "file", "f", "", "archive to write (default: the name of the directory and .zip)")
		},
	}, func(cmd *cobra.Command, _ []string) (b builtCode, err error) {
		project, pool, err := openProject(cmd, python, interpreter, host.Options{})
		if err != nil {
			return b, err
		}
		defer project.Close()
		defer pool.Close()
		if _, err := project.Manifest(cmd.Context(), pool, cmd.ErrOrStderr()); err != nil {
			return b, err
		}
		var archive bytes.Buffer
		digest, files, err := project.Build(&archive)
		if err != nil {
			return b, err
		}
		b = builtCode{File: file, Digest: digest, Files: len(files), Bytes: archive.Len()}
		if b.File == "" {
			b.File = filepath.Base(project.Dir) + ".zip"
		}
		if err := os.WriteFile(environmentOf(cmd.Context()).path(b.File), archive.Bytes(), 0o644); err != nil { //nolint:gosec // an archive that others may read
			return b, fault.New(fault.InvalidArgument, "cannot write "+b.File, fault.Field("--file"), fault.Remedy("name a file in a directory that you can write to"), fault.Cause(err))
		}
		return b, nil
	}, func(w io.Writer, b builtCode) {
		fmt.Fprintf(w, "built %s: %s, %d bytes\n%s\n", clean(b.File), count(b.Files, "file"), b.Bytes, b.Digest)
	})
}
