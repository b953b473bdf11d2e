// Package sdk contains the Python SDK as files, so that a worker can run projects whose environment does
// not have it. The SDK has no dependencies.
package sdk

import (
	"embed"
	"io/fs"
)

//go:embed python/src/servo/*.py python/src/servo/py.typed
var files embed.FS

// Python returns the package servo: a folder that contains it.
func Python() fs.FS {
	root, err := fs.Sub(files, "python/src")
	if err != nil {
		panic(err) // the path is constant and valid
	}
	return root
}
