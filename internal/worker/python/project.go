// Package python prepares Python projects for hosts: the interpreter of the project's environment, the
// SDK, the digest of the code, and the manifest that the project declares. It executes no tasks itself.
package python

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/worker/host"
	"go.arco.dev/servo/sdk"
)

// Project is a directory with Python modules that declare assets.
type Project struct {
	Dir         string   // of the modules
	Modules     []string // to import; empty imports every module that imports servo
	Interpreter string   // python; "" searches .venv, VIRTUAL_ENV and PATH
	PassEnv     []string // variables of this process that hosts get, besides PATH, HOME, TMPDIR, LANG and TZ
	Getenv      func(string) string

	Cache  string    // where archives are installed; "" is the user's cache directory
	Output io.Writer // of installations; nil discards it

	sdk  string // directory with the embedded SDK
	code string // digest of the archive; "" for a directory
}

// Open resolves a project, written as DIR, DIR:MODULE or ARCHIVE.zip, and unpacks the SDK for it. An
// archive is installed once per digest. Close removes the SDK.
func Open(p Project) (*Project, error) {
	if p.Getenv == nil {
		p.Getenv = os.Getenv
	}
	if IsArchive(p.Dir) {
		if err := p.install(); err != nil {
			return nil, err
		}
	}
	if dir, module, found := strings.Cut(p.Dir, ":"); found {
		p.Dir, p.Modules = dir, append(p.Modules, module)
	}
	dir, err := filepath.Abs(p.Dir)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("directory %q does not exist", p.Dir), fault.Field("python"),
			fault.Remedy("name the directory of a project, or create one: servo init --python DIR"), fault.Cause(err))
	}
	p.Dir = dir
	if p.Interpreter == "" {
		if p.Interpreter, err = p.findInterpreter(); err != nil {
			return nil, err
		}
	}
	if p.sdk, err = unpack(); err != nil {
		return nil, fmt.Errorf("unpack the SDK: %w", err)
	}
	return &p, nil
}

// install installs the archive of the project, which then is its directory.
func (p *Project) install() error {
	interpreter, err := p.Interpreter, error(nil)
	if interpreter == "" {
		if interpreter, err = p.findInterpreter(); err != nil {
			return err
		}
	}
	if p.Cache == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			cache = os.TempDir()
		}
		p.Cache = filepath.Join(cache, "servo", "code")
	}
	output := p.Output
	if output == nil {
		output = io.Discard
	}
	p.Dir, p.code, err = Install(context.Background(), p.Dir, p.Cache, interpreter, output)
	return err
}

// Close removes the unpacked SDK.
func (p *Project) Close() { _ = os.RemoveAll(p.sdk) }

// findInterpreter returns the interpreter of the project's environment.
func (p *Project) findInterpreter() (string, error) {
	candidates := []string{filepath.Join(p.Dir, ".venv", "bin", "python"), filepath.Join(p.Dir, "venv", "bin", "python")}
	if active := p.Getenv("VIRTUAL_ENV"); active != "" {
		candidates = append(candidates, filepath.Join(active, "bin", "python"))
	}
	for _, name := range candidates {
		if info, err := os.Stat(name); err == nil && !info.IsDir() {
			return name, nil
		}
	}
	for _, name := range []string{"python3", "python"} {
		if found, err := exec.LookPath(name); err == nil {
			return filepath.Abs(found)
		}
	}
	return "", fault.New(fault.InvalidArgument, "no Python interpreter was found", fault.Field("python"),
		fault.Remedy("install Python 3.10 or newer, or create an environment in the project: python3 -m venv .venv"))
}

// unpack writes the embedded SDK into a new directory that other users can read.
func unpack() (string, error) {
	dir, err := os.MkdirTemp("", "servo-sdk-")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, sdk.Python()); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755) //nolint:gosec // hosts may run as another user
}

// bootstrap starts the host. The SDK of the environment is preferred to the embedded one.
const bootstrap = `import sys
if sys.version_info < (3, 10):
    sys.exit("servo needs Python 3.10 or newer, %s is %s" % (sys.executable, sys.version.split()[0]))
sys.path[:1] = []
sys.path.append(sys.argv.pop(1))
from servo.host import main
main()`

// Host returns what a host of the project executes.
func (p *Project) Host(digest string) host.Code {
	command := []string{p.Interpreter, "-c", bootstrap, p.sdk, p.Dir}
	for _, module := range p.Modules {
		command = append(command, "--module", module)
	}
	return host.Code{Digest: digest, Dir: p.Dir, Command: command, Env: p.environment()}
}

// environment returns the variables of hosts: a few of this process, never its key.
func (p *Project) environment() []string {
	var variables []string
	environment := filepath.Dir(filepath.Dir(p.Interpreter))
	isVenv := false
	if _, err := os.Stat(filepath.Join(environment, "pyvenv.cfg")); err == nil {
		isVenv = true
		variables = append(variables, "VIRTUAL_ENV="+environment)
	}
	for _, name := range append([]string{"PATH", "HOME", "TMPDIR", "LANG", "TZ"}, p.PassEnv...) {
		value := p.Getenv(name)
		if name == "PATH" && isVenv {
			value = filepath.Dir(p.Interpreter) + string(os.PathListSeparator) + value
		}
		if value != "" {
			variables = append(variables, name+"="+value)
		}
	}
	return append(variables, "PYTHONFAULTHANDLER=1", "PYTHONIOENCODING=utf-8:backslashreplace")
}

// Manifest imports the project in a host of its own and returns its manifest as JSON. Mistakes of the
// project are one fault, with file and line of each; what the import prints goes to output.
func (p *Project) Manifest(ctx context.Context, pool *host.Pool, output io.Writer) (json.RawMessage, error) {
	described, err := pool.Manifest(ctx, p.Host(""), &printer{output})
	if err != nil {
		return nil, importFault(err)
	}
	if len(described.Problems) == 0 {
		if _, err := asset.Parse(described.Manifest, "manifest.json"); err != nil {
			return nil, p.placed(err, described.Places)
		}
		return p.pinned(described.Manifest)
	}
	faults := make([]fault.Violation, 0, len(described.Problems))
	for _, problem := range described.Problems {
		if problem.Traceback != "" {
			_, _ = io.WriteString(output, problem.Traceback) // the errors below have the places
		}
		field := ""
		if problem.File != "" {
			field = fmt.Sprintf("%s:%d", p.relative(problem.File), problem.Line)
		}
		faults = append(faults, fault.Violation{Code: fault.InvalidManifest, Field: field, Message: problem.Message, Remedy: problem.Remedy})
	}
	return nil, fault.FromViolations(faults)
}

// relative returns a file of the project relative to it, as editors open it.
func (p *Project) relative(file string) string {
	if relative, err := filepath.Rel(p.Dir, file); err == nil && !strings.HasPrefix(relative, "..") {
		return relative
	}
	return file
}

// placed replaces the paths of a manifest's violations by the places of the declarations.
func (p *Project) placed(err error, places map[string]string) error {
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	violations := slices.Clone(f.Violations())
	for i, v := range violations {
		rest, isAsset := strings.CutPrefix(v.Field, "assets[")
		key, field, found := strings.Cut(rest, "]")
		place, known := places[key]
		if !isAsset || !found || !known {
			continue
		}
		violations[i].Field = p.relative(place)
		violations[i].Message = strings.TrimPrefix(field, ".") + " of " + key + " " + v.Message
	}
	return fault.FromViolations(violations)
}

// pinned adds the digest of an archive to the assets of its manifest.
func (p *Project) pinned(document json.RawMessage) (json.RawMessage, error) {
	if p.code == "" {
		return document, nil
	}
	var manifest map[string]any
	if err := json.Unmarshal(document, &manifest); err != nil {
		return nil, err
	}
	assets, _ := manifest["assets"].([]any)
	for _, entry := range assets {
		if a, ok := entry.(map[string]any); ok {
			if code, ok := a["python"].(map[string]any); ok {
				code["code"] = p.code
			}
		}
	}
	return json.Marshal(manifest)
}

// importFault describes a host that could not import the project.
func importFault(err error) error {
	remedy := "check the interpreter and the environment of the project"
	if failure, ok := err.(*host.Failure); ok && failure.Remedy != "" { //nolint:errorlint // made by the pool
		remedy = failure.Remedy
		if text, _ := failure.Details["stderr"].(string); strings.TrimSpace(text) != "" {
			return fault.New(fault.InvalidArgument, failure.Message+"\n"+strings.TrimSpace(text), fault.Field("python"), fault.Remedy(remedy), fault.Cause(err))
		}
	}
	return fault.New(fault.InvalidArgument, err.Error(), fault.Field("python"), fault.Remedy(remedy), fault.Cause(err))
}

// printer shows what a project prints while it is imported.
type printer struct{ to io.Writer }

// Log prints a line.
func (p *printer) Log(_ time.Time, _, line string) { _, _ = fmt.Fprintln(p.to, line) }

// Progress ignores progress.
func (*printer) Progress(host.Progress) {}

// Answer refuses requests: an import has no task.
func (*printer) Answer(context.Context, string, json.RawMessage) (any, error) {
	return nil, &host.Failure{Class: "INVALID_CONFIGURATION", Message: "no task is running"}
}

// Files returns the files of the project that belong to its code, relative and in order. Environments,
// caches, hidden files and the folder of local runs do not.
func (p *Project) Files() ([]string, error) {
	var found []string
	err := filepath.WalkDir(p.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == p.Dir {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "pyvenv.cfg")); err == nil || strings.HasPrefix(name, ".") || slices.Contains(skipped, name) {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".pyc") || !entry.Type().IsRegular() {
			return nil
		}
		relative, err := filepath.Rel(p.Dir, path)
		found = append(found, filepath.ToSlash(relative))
		return err
	})
	slices.Sort(found)
	return found, err
}

// skipped are folders that are no code.
var skipped = []string{"__pycache__", "node_modules", "build", "dist"}

// Digest returns the digest of the project's code: of the names and contents of its files.
func (p *Project) Digest() (string, error) {
	files, err := p.Files()
	if err != nil {
		return "", err
	}
	return digestOf(os.DirFS(p.Dir), files)
}

// digestOf hashes the names, lengths and contents of files.
func digestOf(root fs.FS, files []string) (string, error) {
	sum := sha256.New()
	for _, name := range files {
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%d %s\n%d ", len(name), name, len(data))
		sum.Write(data)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}
