module karst.io/local/pause

go 1.24.0
