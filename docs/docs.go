// Package docs holds the pages of this directory that the server shows.
package docs

import _ "embed"

// Errors is errors.md, whose codes have a page each under /errors.
//
//go:embed errors.md
var Errors string
