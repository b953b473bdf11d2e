package cli

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
)

//go:embed all:templates
var projectTemplates embed.FS

// newInit creates a project.
func newInit() *cobra.Command {
	var python, golang bool
	cmd := &cobra.Command{
		Use:   "init (--python|--go) DIRECTORY",
		Short: "Create a project that runs at once",
		Long: `Create a project: two assets, a pipeline with a parameter, a test and a config. The directory must
be empty or not exist.

A Python project runs at once, without a server: servo run --local. A Go project is a worker program
with its manifest.`,
		Example: `  servo init --python demo && cd demo && servo run --local '*'
  servo init --go shop`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if python == golang {
				return fault.New(fault.InvalidArgument, "takes one of --python and --go", fault.Remedy("write servo init --python "+args[0]))
			}
			language := "python"
			if golang {
				language = "go"
			}
			files, err := createProject(environmentOf(cmd.Context()).path(args[0]), language)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			for _, name := range files {
				fmt.Fprintln(w, "created "+clean(filepath.Join(args[0], name)))
			}
			fmt.Fprintf(w, "next: read %s\n", clean(filepath.Join(args[0], "README.md")))
			return nil
		},
	}
	cmd.Flags().BoolVar(&python, "python", false, "create a Python project")
	cmd.Flags().BoolVar(&golang, "go", false, "create a Go project")
	return cmd
}

// createProject writes the template of a language and returns the names of its files.
func createProject(dir, language string) ([]string, error) {
	if entries, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) || len(entries) > 0 {
		return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("%s is not an empty directory", dir), fault.Field("DIRECTORY"), fault.Remedy("name a new directory"), fault.Cause(err))
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	root, err := fs.Sub(projectTemplates, "templates/"+language)
	if err != nil {
		return nil, err
	}
	var files []string
	err = fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(path, ".template")
		files = append(files, name)
		target := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil { //nolint:gosec // a project that others may read
			return err
		}
		text := strings.ReplaceAll(string(data), "PROJECT", moduleName(filepath.Base(absolute)))
		return os.WriteFile(target, []byte(text), 0o644) //nolint:gosec // a project that others may read
	})
	return files, err
}

// moduleName returns a name that manifests, modules and Python packages accept.
func moduleName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, strings.ToLower(name))
	if name = strings.Trim(name, "_"); name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "project"
	}
	return name
}
