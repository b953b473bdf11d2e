package python

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

const (
	requirementsFile = "requirements.txt"
	installedMark    = ".servo-installed"
	archiveComment   = "servo code "
	maxArchiveFiles  = 20_000
	maxArchiveBytes  = 1 << 30 // unpacked
)

// IsArchive reports whether a path names an archive that Build has written.
func IsArchive(name string) bool { return strings.HasSuffix(name, ".zip") }

// Build writes the code of a project as an archive, and returns its digest and files. The same files
// result in the same bytes. Requirements must be locked by hashes.
func (p *Project) Build(to io.Writer) (digest string, files []string, err error) {
	if files, err = p.Files(); err != nil {
		return "", nil, err
	}
	if err := p.checkRequirements(); err != nil {
		return "", nil, err
	}
	if digest, err = digestOf(os.DirFS(p.Dir), files); err != nil {
		return "", nil, err
	}
	archive := zip.NewWriter(to)
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(p.Dir, filepath.FromSlash(name)))
		if err != nil {
			return "", nil, err
		}
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		header.SetMode(0o644)
		w, err := archive.CreateHeader(header)
		if err != nil {
			return "", nil, err
		}
		if _, err := w.Write(data); err != nil {
			return "", nil, err
		}
	}
	return digest, files, errors.Join(archive.SetComment(archiveComment+digest), archive.Close())
}

// hashed matches a requirement with the hash of its archive.
var hashed = regexp.MustCompile(`--hash=sha256:[0-9a-f]{64}`)

// checkRequirements refuses requirements without hashes: an archive must install the same packages
// everywhere.
func (p *Project) checkRequirements() error {
	data, err := os.ReadFile(filepath.Join(p.Dir, requirementsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(string(data), "\\\n", " ")
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, "-") || !hashed.MatchString(line) {
			return fault.New(fault.InvalidArgument, fmt.Sprintf("requirement %d, %.80q, has no hash", number+1, line), fault.Field(requirementsFile),
				fault.Remedy("lock it: uv pip compile --generate-hashes requirements.in -o requirements.txt"))
		}
	}
	return nil
}

// Install unpacks an archive, verifies its digest, and installs its requirements, once per digest. It
// returns the directory of the project.
func Install(ctx context.Context, archive, cache, interpreter string, output io.Writer) (dir, digest string, err error) {
	refuse := func(message, remedy string) (string, string, error) {
		return "", "", fault.New(fault.InvalidArgument, archive+" "+message, fault.Field("python"), fault.Remedy(remedy))
	}
	const rebuild = "build it again: servo build"
	reader, err := zip.OpenReader(archive)
	if err != nil {
		return refuse("is no readable archive: "+err.Error(), rebuild)
	}
	defer reader.Close() //nolint:errcheck // it is only read
	digest, isCode := strings.CutPrefix(reader.Comment, archiveComment)
	if !isCode {
		return refuse("was not written by servo build", rebuild)
	}
	files, err := archiveFiles(reader)
	if err != nil {
		return refuse(err.Error(), rebuild)
	}
	if found, err := digestOf(reader, files); err != nil || found != digest {
		return refuse(fmt.Sprintf("has the digest %s, it should be %s", found, digest), rebuild)
	}
	dir = filepath.Join(cache, strings.ReplaceAll(digest, ":", "-"))
	unlock, err := lockFile(dir + ".lock")
	if err != nil {
		return "", "", err
	}
	defer unlock()
	if _, err := os.Stat(filepath.Join(dir, installedMark)); err == nil {
		return dir, digest, nil
	}
	if err := os.RemoveAll(dir); err != nil { // of an installation that did not end
		return "", "", err
	}
	if err := unpackArchive(reader, files, dir); err != nil {
		return "", "", err
	}
	if slices.Contains(files, requirementsFile) {
		if err := installRequirements(ctx, dir, interpreter, output); err != nil {
			return "", "", err
		}
	}
	return dir, digest, os.WriteFile(filepath.Join(dir, installedMark), nil, 0o600)
}

// archiveFiles returns the files of an archive in order, and refuses names that leave its directory.
func archiveFiles(reader *zip.ReadCloser) ([]string, error) {
	var files []string
	total := uint64(0)
	for _, f := range reader.File {
		if !filepath.IsLocal(f.Name) || path.Clean(f.Name) != f.Name || !f.Mode().IsRegular() {
			return nil, fmt.Errorf("contains the invalid file %q", f.Name)
		}
		files = append(files, f.Name)
		total += f.UncompressedSize64
	}
	if len(files) > maxArchiveFiles || total > maxArchiveBytes {
		return nil, fmt.Errorf("has %d files of %d bytes, the limits are %d and %d", len(files), total, maxArchiveFiles, maxArchiveBytes)
	}
	slices.Sort(files)
	return files, nil
}

func unpackArchive(reader fs.FS, files []string, dir string) error {
	for _, name := range files {
		data, err := fs.ReadFile(reader, name)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil { //nolint:gosec // hosts may run as another user
			return err
		}
		if err := os.WriteFile(target, data, 0o644); err != nil { //nolint:gosec // hosts may run as another user
			return err
		}
	}
	return nil
}

// installRequirements creates an environment in the project, with uv if there is one, else with pip.
func installRequirements(ctx context.Context, dir, interpreter string, output io.Writer) error {
	environment := filepath.Join(dir, ".venv")
	python := filepath.Join(environment, "bin", "python")
	commands := [][]string{
		{interpreter, "-m", "venv", environment},
		{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", filepath.Join(dir, requirementsFile)},
	}
	if uv, err := exec.LookPath("uv"); err == nil {
		commands = [][]string{
			{uv, "venv", "--quiet", "--python", interpreter, environment},
			{uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", filepath.Join(dir, requirementsFile)},
		}
	}
	for _, command := range commands {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the interpreter of the worker
		var problems bytes.Buffer
		cmd.Stdout, cmd.Stderr = output, io.MultiWriter(output, &problems)
		if err := cmd.Run(); err != nil {
			return fault.New(fault.InvalidArgument, "the requirements cannot be installed: "+strings.TrimSpace(lastLine(problems.String())), fault.Field("python"),
				fault.Remedy("check the package index of this machine, and the hashes of "+requirementsFile), fault.Cause(err))
		}
	}
	return nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
