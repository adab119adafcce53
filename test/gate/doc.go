// Package gate holds the tests of the whole system on the real programs: fieldgwd, fieldgwctl and fieldgw-server as
// processes, a link that is cut, kills without warning, and the server's own word at the end. It has no code of its own;
// package rig runs the programs.
package gate
